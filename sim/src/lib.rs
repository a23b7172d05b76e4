//! mast-sim: the simulator of mast, its models and oracles, and the bodies of the fuzz targets.

pub mod fuzz;
