//! The languages of subscription expressions.

use rocketpy_filter::MessageFilter;
use rocketpy_protocol::body::SubscriptionData;

use crate::refusal::Refusal;

/// The language of a subscription expression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[doc(alias = "ExpressionType")]
pub(crate) enum ExpressionKind {
    #[default]
    Tag,
    Sql92,
}

impl ExpressionKind {
    /// The language of this name; without a name it is that of tags.
    ///
    /// # Errors
    /// The language is not served.
    pub(crate) fn of(name: Option<&str>) -> Result<Self, Refusal> {
        match name.unwrap_or_default() {
            "" => Ok(Self::Tag),
            name if name.eq_ignore_ascii_case(SubscriptionData::TAG) => Ok(Self::Tag),
            name if name.eq_ignore_ascii_case(SubscriptionData::SQL92) => Ok(Self::Sql92),
            other => Err(Refusal::FilterType { expression_type: other.to_owned() }),
        }
    }

    /// # Errors
    /// The expression is broken. One over tags never is.
    pub(crate) fn parse(self, expression: &str) -> Result<MessageFilter, Refusal> {
        match self {
            Self::Tag => Ok(MessageFilter::tag_codes(expression)),
            Self::Sql92 => MessageFilter::sql(expression)
                .map_err(|error| Refusal::Sql { error, expression: beginning(expression) }),
        }
    }
}

/// An expression for an error, which travels in an answer: a long one is cut off.
fn beginning(expression: &str) -> String {
    const MAX_CHARS: usize = 200;
    let mut shown: String = expression.chars().take(MAX_CHARS).collect();
    if shown.len() < expression.len() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_expression_is_shown_by_its_refusal() {
        let refusal = |text: &str| ExpressionKind::Sql92.parse(text).unwrap_err().to_string();
        let text = refusal("carrier LIKE 'U%'");
        assert!(text.contains("character 9") && text.ends_with("expression: carrier LIKE 'U%'"), "{text}");
        let text = refusal(&format!("a = '{}", "x".repeat(1000)));
        assert!(text.len() < 400 && text.ends_with("xxx..."), "{text}");
    }
}
