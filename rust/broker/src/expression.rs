//! The languages of subscription expressions.

use std::sync::Arc;

use parking_lot::Mutex;
use rocketpy_filter::MessageFilter;
use rocketpy_model::printable::beginning;
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
                .map_err(|error| Refusal::Sql { error, expression: beginning(expression).into_owned() }),
        }
    }
}

/// The filter of the last pull that brought its own: scans and lite consumers send the same one over and over.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    last: Mutex<LastFilter>,
}

impl Filters {
    /// The filter of an expression of this type.
    ///
    /// # Errors
    /// The expression is of a type that is not served, or broken.
    pub(crate) fn parsed(
        &self,
        expression_type: Option<&str>,
        expression: &str,
    ) -> Result<Arc<MessageFilter>, Refusal> {
        let kind = ExpressionKind::of(expression_type)?;
        if let Some(filter) = self.last.lock().of(kind, expression) {
            return Ok(filter);
        }
        // Nobody waits for the lock while this one is parsed.
        let filter = Arc::new(kind.parse(expression)?);
        let last = LastFilter { kind, expression: expression.to_owned(), filter: filter.clone() };
        *self.last.lock() = last;
        Ok(filter)
    }
}

/// An expression and its filter.
#[derive(Debug, Default)]
struct LastFilter {
    kind: ExpressionKind,
    expression: String,
    filter: Arc<MessageFilter>,
}

impl LastFilter {
    fn of(&self, kind: ExpressionKind, expression: &str) -> Option<Arc<MessageFilter>> {
        (self.kind == kind && self.expression == expression).then(|| self.filter.clone())
    }
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
