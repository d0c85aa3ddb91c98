//! The languages that peers are written in.

/// The language that a peer says it is written in.
///
/// # Source
/// docs/reference/protocol.md 1.5.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[doc(alias = "LanguageCode")]
pub enum Language {
    /// Java.
    Java,
    /// C++.
    Cpp,
    /// .NET.
    Dotnet,
    /// Python.
    Python,
    /// Delphi.
    Delphi,
    /// Erlang.
    Erlang,
    /// Ruby.
    Ruby,
    /// Also what an unknown name or number is read as.
    #[default]
    Other,
    /// HTTP gateways.
    Http,
    /// Go.
    Go,
    /// PHP.
    Php,
    /// OpenMessaging.
    Oms,
    /// Rust; known to recent peers only.
    Rust,
    /// Node.js; known to recent peers only.
    NodeJs,
}

const LANGUAGES: [(Language, &str); 14] = [
    (Language::Java, "JAVA"),
    (Language::Cpp, "CPP"),
    (Language::Dotnet, "DOTNET"),
    (Language::Python, "PYTHON"),
    (Language::Delphi, "DELPHI"),
    (Language::Erlang, "ERLANG"),
    (Language::Ruby, "RUBY"),
    (Language::Other, "OTHER"),
    (Language::Http, "HTTP"),
    (Language::Go, "GO"),
    (Language::Php, "PHP"),
    (Language::Oms, "OMS"),
    (Language::Rust, "RUST"),
    (Language::NodeJs, "NODE_JS"),
];

impl Language {
    /// The number in a binary header.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in a JSON header.
    #[must_use]
    pub const fn name(self) -> &'static str {
        LANGUAGES[self as usize].1
    }

    /// The language of a binary header's number.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        LANGUAGES.get(usize::from(code)).map_or(Self::Other, |(language, _)| *language)
    }

    /// The language of a JSON header's name.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        // The usual ones first, in their usual spelling: every JSON header comes here.
        match name {
            "JAVA" => Self::Java,
            "RUST" => Self::Rust,
            "GO" => Self::Go,
            "CPP" => Self::Cpp,
            "OTHER" => Self::Other,
            _ => {
                let found = LANGUAGES.iter().find(|(_, have)| have.eq_ignore_ascii_case(name));
                found.map_or(Self::Other, |(language, _)| *language)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree_with_the_table() {
        for (number, (language, name)) in LANGUAGES.iter().enumerate() {
            assert_eq!(usize::from(language.code()), number);
            assert_eq!(language.name(), *name);
            assert_eq!(Language::from_code(number as u8), *language);
            assert_eq!(Language::from_name(name), *language);
        }
        assert_eq!(Language::from_code(200), Language::Other);
        assert_eq!(Language::from_name("COBOL"), Language::Other);
    }
}
