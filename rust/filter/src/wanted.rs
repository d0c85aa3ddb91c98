//! The tags that a reader asks for, as people write them. What comes off the wire is read by [`TagFilter::parse`], which takes
//! everything.

use crate::TagFilter;

/// What a reader asks for: an expression, or the tags themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    /// `*` or nothing for every message, or tags separated by `||`.
    Expression(String),
    /// Tags as they are.
    List(Vec<String>),
}

/// Why tags cannot be asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum TagsError {
    /// Such text would be one long tag, which no message has.
    #[error("illegal tag expression (tags must be separated by ||, found {sign}): {expression}")]
    OtherLanguage { expression: String, sign: &'static str },
    /// Apache's clients take the star for a tag, which no message has.
    #[error("illegal tag expression (`*` cannot be combined with tags): {expression}")]
    EverythingAmongTags { expression: String },
    #[error("illegal tag expression (no tag): {expression}")]
    NoTag { expression: String },
    #[error("tag cannot be used in a subscription ({reason}): {tag:?}")]
    Unnameable { tag: String, reason: &'static str },
}

/// Signs of SQL92, of lists and of other filters.
const SIGNS: [&str; 10] = [",", "=", "<", ">", "(", ")", "'", "\"", "&&", "|"];
/// The signs of these that tell SQL92.
const SQL_SIGNS: [&str; 6] = ["=", "<", ">", "(", ")", "'"];
/// Words that stand between two operands, in any case.
const JOINING: [&str; 2] = ["OR", "AND"];
/// Words of SQL92 that only count in capitals: in small letters they may be a part of a tag.
const CAPITALS: [&str; 5] = ["IN", "NOT", "LIKE", "IS", "BETWEEN"];

impl Tags {
    /// The filter, and the expression that says the same on the wire.
    ///
    /// # Errors
    /// [`TagsError`]: an expression in what is surely another language (`UA|AA`, `UA,AA`, `UA OR AA`, `tag = 'UA'`), one with `*` among
    /// tags, no tag at all, and a listed tag that no expression can name. A tag may hold blanks, and in a list whatever is not one of these.
    pub fn filter(&self) -> Result<(TagFilter, String), TagsError> {
        match self {
            Self::Expression(text) => {
                if let Some(sign) = foreign_sign(text) {
                    return Err(TagsError::OtherLanguage { expression: text.clone(), sign });
                }
                let filter = TagFilter::parse(text);
                if filter.is_all() {
                    return Ok((filter, TagFilter::EVERYTHING.to_owned()));
                }
                if filter.names().iter().any(|name| name == TagFilter::EVERYTHING) {
                    return Err(TagsError::EverythingAmongTags { expression: text.clone() });
                }
                if filter.names().is_empty() {
                    return Err(TagsError::NoTag { expression: text.clone() });
                }
                Ok((filter, text.trim().to_owned()))
            }
            Self::List(tags) => {
                if let Some((tag, reason)) = tags.iter().find_map(|tag| Some((tag, unnameable(tag)?))) {
                    return Err(TagsError::Unnameable { tag: tag.clone(), reason });
                }
                if tags.is_empty() {
                    return Err(TagsError::NoTag { expression: "[]".to_owned() });
                }
                let expression = tags.join(" || ");
                Ok((TagFilter::parse(&expression), expression))
            }
        }
    }
}

impl TagsError {
    /// The right form.
    #[must_use]
    pub fn hint(&self) -> String {
        let names = match self {
            Self::OtherLanguage { expression, .. } => names(expression),
            Self::NoTag { .. } => Vec::new(),
            Self::EverythingAmongTags { .. } => {
                return "write \"*\" alone for every message, or only the tags".to_owned();
            }
            Self::Unnameable { tag, .. } if tag == TagFilter::EVERYTHING => {
                return "write tags=\"*\" for every message".to_owned();
            }
            Self::Unnameable { .. } => return "send the messages with another tag".to_owned(),
        };
        let names = if names.is_empty() { vec!["UA", "AA"] } else { names };
        let is_sql = matches!(self, Self::OtherLanguage { sign, .. } if SQL_SIGNS.contains(sign) || CAPITALS.contains(sign));
        let no_sql = if is_sql { "; for an SQL expression use the consumer option sql" } else { "" };
        format!("write \"{}\", or tags={names:?}, which is not parsed{no_sql}", names.join(" || "))
    }
}

/// What tells that a text is written in another language.
fn foreign_sign(expression: &str) -> Option<&'static str> {
    let pieces = || expression.split(TagFilter::SEPARATOR);
    let sign = SIGNS.into_iter().find(|sign| pieces().any(|piece| piece.contains(sign)));
    sign.or_else(|| pieces().find_map(foreign_word))
}

fn foreign_word(piece: &str) -> Option<&'static str> {
    let words: Vec<&str> = piece.split_whitespace().collect();
    let between = words.get(1..words.len().saturating_sub(1)).unwrap_or_default();
    let joins = |known: &&str| between.iter().any(|word| word.eq_ignore_ascii_case(known));
    let is_capital = |known: &&str| words.len() > 1 && words.contains(known);
    JOINING.into_iter().find(joins).or_else(|| CAPITALS.into_iter().find(is_capital))
}

/// The tags that a text in another language probably means; none where that is not clear.
fn names(expression: &str) -> Vec<&str> {
    let quote = ['\'', '"'];
    if expression.contains(quote) {
        return expression.split(quote).skip(1).step_by(2).collect();
    }
    let is_capital = |word: &str| CAPITALS.contains(&word);
    if expression.contains(['=', '<', '>', '(', ')']) || expression.split_whitespace().any(is_capital) {
        return Vec::new();
    }
    let mut names = Vec::new();
    for piece in expression.split([',', '|', '&']) {
        let is_joining = |word: &&str| JOINING.iter().any(|known| word.eq_ignore_ascii_case(known));
        names.extend(piece.split_whitespace().filter(|word| !is_joining(word)));
    }
    names
}

/// Why no subscription can name a tag: an expression splits at `||`, drops blanks around a tag, and `*` asks for every message.
/// `None` for a tag that one can name.
#[must_use]
pub fn unnameable(tag: &str) -> Option<&'static str> {
    match tag {
        "" => Some("it is empty"),
        TagFilter::EVERYTHING => Some("`*` selects all messages"),
        _ if tag.contains(TagFilter::SEPARATOR) => Some("`||` separates tags"),
        _ if tag.starts_with(is_blank) || tag.ends_with(is_blank) => Some("blanks around a tag are ignored"),
        _ => None,
    }
}

/// What an expression drops around a tag: here all white space, in Java every control character too.
fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || letter <= ' '
}

impl From<&str> for Tags {
    fn from(expression: &str) -> Self {
        Self::Expression(expression.to_owned())
    }
}

impl From<String> for Tags {
    fn from(expression: String) -> Self {
        Self::Expression(expression)
    }
}

impl From<Vec<String>> for Tags {
    fn from(tags: Vec<String>) -> Self {
        Self::List(tags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(tags: impl Into<Tags>) -> Vec<String> {
        tags.into().filter().unwrap().0.names().to_vec()
    }

    #[test]
    fn an_expression_names_tags_between_bars() {
        assert_eq!(names_of(" UA || AA||UA "), ["UA", "AA"]);
        assert_eq!(Tags::from("*").filter(), Ok((TagFilter::All, "*".to_owned())));
        assert_eq!(Tags::from(" ").filter(), Ok((TagFilter::All, "*".to_owned())));
        for tag in ["not found", "or", "OR", "terms of use", "a.b-c_d:e/f", "50%", "ü", "IN", "a & b", "UA*"]
        {
            assert_eq!(names_of(tag), [tag], "a tag may be so");
        }
    }

    #[test]
    fn everything_among_tags_is_refused() {
        for expression in ["UA || *", "* || UA", "*||*"] {
            let error = Tags::from(expression).filter().unwrap_err();
            assert_eq!(error, TagsError::EverythingAmongTags { expression: expression.to_owned() });
            assert!(error.hint().contains("alone"), "{}", error.hint());
        }
        assert_eq!(names_of("U* || **"), ["U*", "**"]);
    }

    #[test]
    fn what_is_written_in_another_language_is_refused_with_the_right_form() {
        for expression in
            ["UA|AA", "UA | AA", "UA,AA", "UA, AA", "UA OR AA", "UA or AA", "UA AND AA", "UA&&AA"]
        {
            let error = Tags::from(expression).filter().unwrap_err();
            assert!(matches!(error, TagsError::OtherLanguage { .. }), "{expression}");
            assert!(
                error.hint().starts_with(r#"write "UA || AA", or tags=["UA", "AA"]"#),
                "{}",
                error.hint()
            );
        }
        let one = Tags::from("tag = 'UA'").filter().unwrap_err();
        assert!(one.hint().starts_with(r#"write "UA", or tags=["UA"]"#), "{}", one.hint());
        for (expression, is_sql) in [("tag = 'UA'", true), ("a IS NOT NULL", true), ("UA,AA", false)] {
            let hint = Tags::from(expression).filter().unwrap_err().hint();
            assert_eq!(hint.contains("SQL"), is_sql, "{hint}");
            assert!(!hint.contains("NULL"), "{hint}");
        }
        for expression in
            ["a > 5", "TAGS in ('a')", "a ||| b", "UA || AA|BB", "NOT UA", "tag IN UA", "a = b", "\"UA\""]
        {
            assert!(
                matches!(Tags::from(expression).filter(), Err(TagsError::OtherLanguage { .. })),
                "{expression}"
            );
        }
        assert!(matches!(Tags::from("|| ||").filter(), Err(TagsError::NoTag { .. })));
    }

    #[test]
    fn a_list_takes_tags_as_they_are() {
        let odd = ["UA,AA", "a|b", "x OR y", "tag = 'UA'", "(1)"].map(str::to_owned).to_vec();
        assert_eq!(names_of(odd.clone()), odd);
        let (filter, expression) = Tags::from(odd).filter().unwrap();
        assert_eq!(TagFilter::parse(&expression), filter, "the broker reads the same");
        for tag in ["", "a||b", " a", "*"] {
            let error = Tags::List(vec!["UA".to_owned(), tag.to_owned()]).filter().unwrap_err();
            assert!(matches!(error, TagsError::Unnameable { .. }), "{tag}");
        }
        assert!(matches!(Tags::List(Vec::new()).filter(), Err(TagsError::NoTag { .. })));
    }
}
