//! Cuts an expression into tokens.

use super::SqlError;

/// A token and the character it begins at, from 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Name(Box<str>),
    Word(Word),
    Text(Box<str>),
    Long(i64),
    Double(f64),
    Symbol(&'static str),
    End,
}

/// A keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    And,
    Between,
    Contains,
    EndsWith,
    False,
    In,
    Is,
    Not,
    Null,
    Or,
    StartsWith,
    True,
}

const WORDS: [(&str, Word); 12] = [
    ("AND", Word::And),
    ("BETWEEN", Word::Between),
    ("CONTAINS", Word::Contains),
    ("ENDSWITH", Word::EndsWith),
    ("FALSE", Word::False),
    ("IN", Word::In),
    ("IS", Word::Is),
    ("NOT", Word::Not),
    ("NULL", Word::Null),
    ("OR", Word::Or),
    ("STARTSWITH", Word::StartsWith),
    ("TRUE", Word::True),
];

/// Longer ones first.
const SYMBOLS: [&str; 11] = ["<>", "<=", ">=", "=", "<", ">", "(", ")", ",", "+", "-"];

impl Kind {
    /// What an error calls it.
    pub(super) fn describe(&self) -> String {
        /// A name or text is cut off there: the error travels in an answer.
        const MAX_CHARS: usize = 40;
        let short = |text: &str| text.chars().take(MAX_CHARS).collect::<String>();
        match self {
            Self::Name(name) => short(name),
            Self::Word(word) => WORDS
                .iter()
                .find(|(_, it)| it == word)
                .map_or_else(String::new, |(text, _)| (*text).to_owned()),
            Self::Text(text) => format!("'{}'", short(text)),
            Self::Long(number) => number.to_string(),
            Self::Double(number) => number.to_string(),
            Self::Symbol(symbol) => format!("\"{symbol}\""),
            Self::End => "the end".to_owned(),
        }
    }
}

/// What is left of an expression.
struct Rest<'a> {
    whole: &'a str,
    text: &'a str,
}

/// The tokens of an expression; the last one is [`Kind::End`].
pub(super) fn tokens(whole: &str) -> Result<Vec<Token>, SqlError> {
    let mut rest = Rest { whole, text: whole };
    let mut tokens = Vec::new();
    let mut counted = (0, 1);
    loop {
        rest.skip_blanks()?;
        // Positions are counted on from the last token: an expression of one character each stays linear.
        let start = rest.start();
        let at = counted.1 + whole[counted.0..start].chars().count();
        counted = (start, at);
        let kind = rest.token(at)?;
        let is_end = kind == Kind::End;
        tokens.push(Token { kind, at });
        if is_end {
            return Ok(tokens);
        }
    }
}

impl<'a> Rest<'a> {
    fn start(&self) -> usize {
        self.whole.len() - self.text.len()
    }

    fn at(&self) -> usize {
        self.whole[..self.start()].chars().count() + 1
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.text.split_at(bytes);
        self.text = rest;
        taken
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        self.take(self.text.find(|it| !is_part(it)).unwrap_or(self.text.len()))
    }

    /// Skips spaces and comments.
    fn skip_blanks(&mut self) -> Result<(), SqlError> {
        loop {
            self.take_while(|it| matches!(it, ' ' | '\t' | '\n' | '\r' | '\x0c'));
            if self.text.starts_with("--") {
                self.take_while(|it| it != '\n' && it != '\r');
            } else if self.text.starts_with("/*") {
                let Some(end) = self.text[2..].find("*/") else {
                    return Err(SqlError::NotClosed { at: self.at(), what: "comment" });
                };
                self.take(end + 4);
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self, at: usize) -> Result<Kind, SqlError> {
        let mut ahead = self.text.chars();
        let Some(first) = ahead.next() else { return Ok(Kind::End) };
        if first == '\'' {
            return self.quoted(at);
        }
        if first.is_ascii_digit() || first == '.' && ahead.next().is_some_and(|it| it.is_ascii_digit()) {
            return self.number(at);
        }
        if is_name_start(first) {
            let name = self.take_while(|it| is_name_start(it) || it.is_ascii_digit());
            let word = WORDS.iter().find(|(text, _)| text.eq_ignore_ascii_case(name));
            return Ok(word.map_or_else(|| Kind::Name(name.into()), |(_, word)| Kind::Word(*word)));
        }
        let symbol = SYMBOLS.into_iter().find(|symbol| self.text.starts_with(symbol));
        let symbol = symbol.ok_or(SqlError::Character { at, found: first })?;
        self.take(symbol.len());
        Ok(Kind::Symbol(symbol))
    }

    /// A text in quotes; two quotes stand for one.
    fn quoted(&mut self, at: usize) -> Result<Kind, SqlError> {
        let mut text = String::new();
        self.take(1);
        loop {
            text.push_str(self.take_while(|it| it != '\''));
            if self.text.is_empty() {
                return Err(SqlError::NotClosed { at, what: "text" });
            }
            self.take(1);
            if !self.text.starts_with('\'') {
                return Ok(Kind::Text(text.into()));
            }
            text.push_str(self.take(1));
        }
    }

    fn number(&mut self, at: usize) -> Result<Kind, SqlError> {
        let wrong = SqlError::Number { at };
        let before = self.text;
        let whole = self.take_while(|it| it.is_ascii_digit());
        let mut is_whole = true;
        if self.text.starts_with('.') {
            is_whole = false;
            self.take(1);
            self.take_while(|it| it.is_ascii_digit());
        }
        if self.text.starts_with(['e', 'E']) {
            is_whole = false;
            self.take(1);
            self.take(usize::from(self.text.starts_with(['+', '-'])));
            if self.take_while(|it| it.is_ascii_digit()).is_empty() {
                return Err(wrong);
            }
        }
        let number = &before[..before.len() - self.text.len()];
        if is_whole {
            self.take(usize::from(self.text.starts_with(['l', 'L'])));
        }
        let leads_with_zero = is_whole && whole.len() > 1 && whole.starts_with('0');
        if leads_with_zero || self.text.starts_with(|it| is_name_start(it) || it == '.') {
            return Err(wrong);
        }
        if is_whole && let Ok(number) = number.parse() {
            return Ok(Kind::Long(number));
        }
        number.parse().ok().filter(|it: &f64| it.is_finite()).map(Kind::Double).ok_or(wrong)
    }
}

const fn is_name_start(it: char) -> bool {
    it.is_ascii_alphabetic() || it == '_' || it == '$'
}
