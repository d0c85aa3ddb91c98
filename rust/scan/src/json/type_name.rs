//! Names of types as Spark writes them.

use std::fmt;

use arrow_schema::{DataType, FieldRef};

/// The name of a type in Spark's DDL, such as `array<decimal(10,2)>`; Arrow's name where Spark has none.
pub(super) struct TypeName<'a>(pub(super) &'a DataType);

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |field: &FieldRef| TypeName(field.data_type()).to_string();
        match self.0 {
            DataType::Null => f.write_str("void"),
            DataType::Boolean => f.write_str("boolean"),
            DataType::Int8 => f.write_str("tinyint"),
            DataType::Int16 => f.write_str("smallint"),
            DataType::Int32 => f.write_str("int"),
            DataType::Int64 => f.write_str("bigint"),
            DataType::Float32 => f.write_str("float"),
            DataType::Float64 => f.write_str("double"),
            DataType::Decimal128(precision, scale) => write!(f, "decimal({precision},{scale})"),
            DataType::Utf8 => f.write_str("string"),
            DataType::Binary => f.write_str("binary"),
            DataType::Date32 => f.write_str("date"),
            DataType::Timestamp(_, Some(_)) => f.write_str("timestamp"),
            DataType::Timestamp(_, None) => f.write_str("timestamp_ntz"),
            DataType::List(item) => write!(f, "array<{}>", of(item)),
            DataType::Struct(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|field| format!("{}:{}", field.name(), of(field))).collect();
                write!(f, "struct<{}>", fields.join(","))
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) if fields.len() == 2 => {
                    write!(f, "map<{},{}>", of(&fields[0]), of(&fields[1]))
                }
                other => write!(f, "map<{other}>"),
            },
            other => write!(f, "{other}"),
        }
    }
}
