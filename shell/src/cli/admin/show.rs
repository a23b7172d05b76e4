//! Answers of the API as tables of plain text, or as they came.

use serde_json::Value;

/// A list as a table: a header in capitals, columns as wide as their widest cell.
pub fn table(items: &[Value], columns: &[&str]) -> String {
    let header: Vec<String> =
        columns.iter().map(|c| c.rsplit('.').next().unwrap_or(c).to_uppercase()).collect();
    let rows: Vec<Vec<String>> =
        items.iter().map(|item| columns.iter().map(|column| cell(find(item, column))).collect()).collect();
    let mut widths: Vec<usize> = header.iter().map(String::len).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in std::iter::once(&header).chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            let pad = width.saturating_sub(cell.chars().count()) + 2;
            line.extend(std::iter::repeat_n(' ', pad));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// One object: a line for each field.
pub fn object(value: &Value) -> String {
    let mut out = String::new();
    lines(value, "", &mut out);
    out
}

fn lines(value: &Value, prefix: &str, out: &mut String) {
    let Some(fields) = value.as_object() else {
        out.push_str(&format!("{}\n", cell(value)));
        return;
    };
    for (name, value) in fields {
        match value {
            Value::Object(inner) if !inner.is_empty() => lines(value, &format!("{prefix}{name}."), out),
            Value::Null => {}
            other => out.push_str(&format!("{prefix}{name}: {}\n", cell(other))),
        }
    }
}

fn find<'a>(item: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(item, |value, part| &value[part])
}

/// What came from clients cannot steer the terminal.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect(),
        Value::Object(fields) if fields.is_empty() => "-".to_owned(),
        Value::Array(items) if items.iter().all(|i| !i.is_object()) => {
            items.iter().map(cell).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_lines_up_and_control_characters_are_replaced() {
        let items = [json!({ "name": "a", "n": { "m": 1 } }), json!({ "name": "b\u{1b}long", "n": {} })];
        assert_eq!(table(&items, &["name", "n.m"]), "NAME    M\na       1\nb\u{FFFD}long  -\n");
        assert_eq!(object(&json!({ "a": 1, "b": null, "c": { "d": "x" } })), "a: 1\nc.d: x\n");
    }
}
