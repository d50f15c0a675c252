//! The part of JSON Schema that the schema uses. A keyword that is not known here fails, and so does a property that the
//! schema does not name: readers accept new fields, this test does not.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

pub struct Validator {
    schema: Value,
}

/// Keywords that restrict nothing.
const NOTES: [&str; 4] = ["description", "title", "format", "default"];

impl Validator {
    pub fn new(schema: Value) -> Self {
        Self { schema }
    }

    pub fn answers(&self) -> impl Iterator<Item = &str> {
        self.schema["answers"].as_object().unwrap().keys().map(String::as_str)
    }

    pub fn check(&self, answer: &str, value: &Value) {
        let mut named = Some(BTreeSet::new());
        let valid = self.valid(&self.schema["answers"][answer], value, &mut named);
        valid.and_then(|()| closed(value, named)).unwrap_or_else(|why| panic!("{answer}: {why} in {value}"));
    }

    /// Whether a value is valid. `named` collects the properties that the schema names; `None` if any is allowed.
    fn valid(&self, schema: &Value, value: &Value, named: &mut Option<BTreeSet<String>>) -> Result<(), String> {
        let keywords = schema.as_object().ok_or_else(|| format!("no schema: {schema}"))?;
        for (keyword, rule) in keywords {
            match keyword.as_str() {
                "$ref" => {
                    let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                    self.valid(&self.schema["$defs"][name], value, named)?;
                }
                "type" => is_type(rule, value).then_some(()).ok_or_else(|| format!("{value} is no {rule}"))?,
                "const" => (rule == value).then_some(()).ok_or_else(|| format!("{value} is not {rule}"))?,
                "enum" => {
                    let is_listed = rule.as_array().unwrap().contains(value);
                    is_listed.then_some(()).ok_or_else(|| format!("{value} is none of {rule}"))?;
                }
                "minimum" => value
                    .as_f64()
                    .is_none_or(|number| Some(number) >= rule.as_f64())
                    .then_some(())
                    .ok_or("too small")?,
                "maximum" => value
                    .as_f64()
                    .is_none_or(|number| Some(number) <= rule.as_f64())
                    .then_some(())
                    .ok_or("too large")?,
                "items" => value.as_array().into_iter().flatten().try_for_each(|item| self.whole(rule, item))?,
                "required" => required(rule, value)?,
                "properties" => self.properties(rule.as_object().unwrap(), value, named)?,
                "additionalProperties" if rule == &Value::Bool(true) => *named = None,
                "additionalProperties" if rule == &Value::Bool(false) => {}
                "additionalProperties" => {
                    *named = None;
                    value.as_object().into_iter().flatten().try_for_each(|(_, field)| self.whole(rule, field))?;
                }
                "anyOf" | "oneOf" => self.one_of(rule.as_array().unwrap(), value, named)?,
                note if NOTES.contains(&note) => {}
                unknown => return Err(format!("the keyword {unknown} is not known")),
            }
        }
        Ok(())
    }

    /// A value inside another one, with properties of its own.
    fn whole(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let mut named = Some(BTreeSet::new());
        self.valid(schema, value, &mut named)?;
        closed(value, named)
    }

    fn properties(
        &self,
        schemas: &Map<String, Value>,
        value: &Value,
        named: &mut Option<BTreeSet<String>>,
    ) -> Result<(), String> {
        for (name, schema) in schemas {
            if let Some(field) = value.get(name) {
                self.whole(schema, field).map_err(|why| format!("{name}: {why}"))?;
            }
            if let Some(named) = named {
                named.insert(name.clone());
            }
        }
        Ok(())
    }

    fn one_of(&self, schemas: &[Value], value: &Value, named: &mut Option<BTreeSet<String>>) -> Result<(), String> {
        let mut reasons = Vec::new();
        for schema in schemas {
            let mut tried = named.clone();
            match self.valid(schema, value, &mut tried) {
                Ok(()) => {
                    *named = tried;
                    return Ok(());
                }
                Err(why) => reasons.push(why),
            }
        }
        Err(reasons.join("; "))
    }
}

/// Whether every property is named.
fn closed(value: &Value, named: Option<BTreeSet<String>>) -> Result<(), String> {
    let (Some(object), Some(named)) = (value.as_object(), named) else { return Ok(()) };
    match object.keys().find(|key| !named.contains(*key)) {
        Some(key) => Err(format!("the property {key} is not in the schema")),
        None => Ok(()),
    }
}

fn required(names: &Value, value: &Value) -> Result<(), String> {
    let missing = names.as_array().unwrap().iter().find(|name| value.get(name.as_str().unwrap()).is_none());
    missing.map_or(Ok(()), |name| Err(format!("{name} is missing")))
}

fn is_type(rule: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    };
    rule.as_array().map_or_else(|| is(rule), |any| any.iter().any(is))
}

#[test]
fn the_validator_refuses_what_does_not_fit() {
    let schema = serde_json::json!({
        "answers": { "a": { "$ref": "#/$defs/A" } },
        "$defs": { "A": {
            "type": "object", "required": ["n"],
            "properties": { "n": { "type": ["integer", "null"], "minimum": 0 } },
            "oneOf": [{ "properties": { "w": { "enum": ["x"] } }, "required": ["w"] }, { "required": ["n"] }],
        } },
    });
    let validator = Validator::new(schema);
    let valid = |text: &str| {
        let value = serde_json::from_str(text).unwrap();
        std::panic::catch_unwind(|| validator.check("a", &value)).is_ok()
    };
    assert!(valid(r#"{"n": 1}"#) && valid(r#"{"n": null, "w": "x"}"#));
    for wrong in [r#"{}"#, r#"{"n": -1}"#, r#"{"n": "1"}"#, r#"{"n": 1, "m": 1}"#, r#"{"n": 1, "w": "y"}"#, "[]"] {
        assert!(!valid(wrong), "{wrong}");
    }
}
