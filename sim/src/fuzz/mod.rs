//! Bodies of the fuzz targets.

pub mod topic_match;
