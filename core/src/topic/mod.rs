//! Topic names, filters and the indexes over them.
