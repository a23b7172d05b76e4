//! `$SYS` topics.
