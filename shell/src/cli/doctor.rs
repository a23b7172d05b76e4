//! `mast doctor`: what would keep the broker from starting or serving, each with the way out.

use super::{ConfigArgs, Failure, print};
use crate::doctor::{Grade, examine};

pub fn run(args: ConfigArgs) -> Result<(), Failure> {
    let findings = examine(&args.sources());
    let mut out = String::new();
    for finding in &findings {
        let word = match finding.grade {
            Grade::Good => "ok     ",
            Grade::Remark => "remark ",
            Grade::Bad => "PROBLEM",
        };
        out.push_str(&format!("{word}  {}: {}\n", finding.topic, finding.text));
    }
    print(out.as_bytes())?;
    match findings.iter().filter(|f| f.grade == Grade::Bad).count() {
        0 => Ok(()),
        1 => Err(Failure::new("1 problem was found")),
        n => Err(Failure::new(format!("{n} problems were found"))),
    }
}
