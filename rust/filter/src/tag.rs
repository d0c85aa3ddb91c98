//! The hash of tags and keys, and the subscription expression over tags.

/// The hash that Java's `String.hashCode` gives for `text`: over UTF-16 units, wrapping at 32 bits.
///
/// # Source
/// docs/reference/store-format.md 0 (`javaHash`), docs/reference/protocol.md 5.5.
#[must_use]
#[doc(alias = "javaHash")]
pub fn hash_code(text: &str) -> i32 {
    hash_code_on(0, text)
}

/// The hash of the text under which a key is indexed: `topic#key`.
///
/// # Source
/// docs/reference/store-format.md 4.2.
#[must_use]
#[doc(alias = "buildKey")]
pub fn key_hash_code(topic: &str, key: &str) -> i32 {
    [topic, "#", key].into_iter().fold(0, hash_code_on)
}

/// The hash of a text that ends with `text`, from the hash of what is before it.
#[must_use]
pub fn hash_code_on(hash: i32, text: &str) -> i32 {
    let step = |hash: i32, unit: i32| hash.wrapping_mul(31).wrapping_add(unit);
    if !text.is_ascii() {
        return text.encode_utf16().fold(hash, |hash, unit| step(hash, i32::from(unit)));
    }
    // Four letters a step: the products of one step do not wait for each other.
    let (fours, rest) = text.as_bytes().as_chunks::<4>();
    let hash = fours.iter().fold(hash, |hash, four| {
        let [a, b, c, d] = four.map(i32::from);
        hash.wrapping_mul(31 * 31 * 31 * 31).wrapping_add(a * (31 * 31 * 31) + b * (31 * 31) + c * 31 + d)
    });
    rest.iter().fold(hash, |hash, &byte| step(hash, i32::from(byte)))
}

/// The tag code of a consume queue entry: the hash of the tag, sign-extended; 0 for an empty tag.
///
/// # Source
/// docs/reference/store-format.md 2.8.
#[must_use]
#[doc(alias = "tagsString2tagsCode")]
pub fn tag_code(tag: &str) -> i64 {
    i64::from(hash_code(tag))
}

/// Whether this number in place of a tag code is an address of Apache's `enableConsumeQueueExt`, below every tag's code: the tag
/// stands elsewhere and may be any.
///
/// # Source
/// docs/reference/store-format.md 3.5 and 11.4.
#[must_use]
#[doc(alias = "isExtAddr")]
pub const fn is_extension_address(code: i64) -> bool {
    code < i32::MIN as i64
}

/// Which messages of a topic a subscription wants.
///
/// The broker tests the 32-bit code that stands in the consume queue, so tags whose hashes collide pass there;
/// the receiver tests the tag itself.
///
/// # Source
/// docs/reference/protocol.md 5.5, docs/reference/client.md 7.3.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[doc(alias = "SubscriptionData")]
pub enum TagFilter {
    /// Every message, tagged or not.
    #[default]
    All,
    /// Messages that carry one of these tags.
    Tags {
        /// The hashes of `names`, sorted, each once.
        codes: Box<[i64]>,
        /// The tags in the order of the expression, each once.
        names: Box<[String]>,
    },
}

impl TagFilter {
    /// Stands between two tags of an expression.
    pub const SEPARATOR: &'static str = "||";
    /// The expression that wants everything.
    pub const EVERYTHING: &'static str = "*";

    /// Reads a subscription expression: `*`, nothing, or tags separated by `||`.
    ///
    /// Spaces around a tag do not count and empty pieces are dropped. An expression without any tag between its bars wants
    /// nothing, as it names no tag.
    #[must_use]
    pub fn parse(expression: &str) -> Self {
        let expression = expression.trim();
        if expression.is_empty() || expression == Self::EVERYTHING {
            return Self::All;
        }
        let mut names: Vec<String> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for tag in expression.split(Self::SEPARATOR).map(str::trim).filter(|tag| !tag.is_empty()) {
            if seen.insert(tag) {
                names.push(tag.to_owned());
            }
        }
        let mut codes: Vec<i64> = names.iter().map(|tag| tag_code(tag)).collect();
        codes.sort_unstable();
        codes.dedup();
        Self::Tags { codes: codes.into(), names: names.into() }
    }

    /// Says whether an entry with this tag code may be wanted (server side, by hash).
    ///
    /// An entry with an [extension address](is_extension_address) may be wanted.
    #[must_use]
    #[doc(alias = "isMatchedByConsumeQueue")]
    pub fn accepts_code(&self, code: i64) -> bool {
        match self {
            Self::All => true,
            Self::Tags { .. } if is_extension_address(code) => true,
            // Subscriptions name a few tags: a walk beats a search until then.
            Self::Tags { codes, .. } if codes.len() <= 8 => codes.contains(&code),
            Self::Tags { codes, .. } => codes.binary_search(&code).is_ok(),
        }
    }

    /// Says whether a message with this tag is wanted (receiver side, by text).
    #[must_use]
    pub fn accepts_tag(&self, tag: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Tags { names, .. } => tag.is_some_and(|tag| names.iter().any(|name| name == tag)),
        }
    }

    /// Says whether every message is wanted.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// The codes of the tags asked for, sorted, each once; `None` for [`TagFilter::All`].
    #[must_use]
    pub const fn codes(&self) -> Option<&[i64]> {
        match self {
            Self::All => None,
            Self::Tags { codes, .. } => Some(codes),
        }
    }

    /// The tags asked for; none for [`TagFilter::All`].
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::All => &[],
            Self::Tags { names, .. } => names,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_those_of_the_specifications() {
        for (text, hash) in [
            ("", 0),
            ("*", 42),
            ("TagA", 2_598_919),
            ("TagB", 2_598_920),
            ("TagC", 2_598_921),
            ("hello-world-tag", 1_053_414_308),
            ("\u{6807}\u{7b7e}", 857_175),
            ("\u{1f600}", 1_772_899),
            ("order-created", -392_709_271),
            ("topicA", -868_034_318),
            ("topicA#key1", -1_026_010_461),
            ("polygenelubricants", i32::MIN),
            ("topicA#\u{4e2d}\u{6587}", 388_401_707),
        ] {
            assert_eq!(hash_code(text), hash, "{text}");
        }
        assert_eq!(tag_code("order-created") as u64, 0xffff_ffff_e897_bb69);
    }

    #[test]
    fn an_expression_is_split_at_bars_and_trimmed() {
        for everything in ["", "*", "  * ", "   "] {
            assert_eq!(TagFilter::parse(everything), TagFilter::All, "{everything:?}");
        }
        let filter = TagFilter::parse(" UA || AA||UA ||  || ");
        assert_eq!(filter.names(), ["UA", "AA"]);
        assert!(filter.accepts_code(tag_code("AA")));
        assert!(!filter.accepts_code(tag_code("DL")));
        assert!(!filter.accepts_code(0), "a message without a tag matches no tag");
        assert!(filter.accepts_tag(Some("UA")));
        assert!(!filter.accepts_tag(None));
        assert!(TagFilter::All.accepts_tag(None));
    }

    #[test]
    fn an_expression_of_bars_only_wants_nothing() {
        let filter = TagFilter::parse("|| ||");
        assert!(!filter.accepts_tag(Some("a")));
        assert!(!filter.accepts_code(0));
    }

    #[test]
    fn colliding_tags_pass_by_code_and_not_by_text() {
        let filter = TagFilter::parse("Aa");
        assert!(filter.accepts_code(tag_code("BB")), "the hashes of Aa and BB are equal");
        assert!(!filter.accepts_tag(Some("BB")));
    }

    #[test]
    fn an_entry_whose_tag_stands_elsewhere_may_be_wanted() {
        let filter = TagFilter::parse("a||b");
        for address in [i64::MIN, i64::MIN + 34, i64::from(i32::MIN) - 1] {
            assert!(filter.accepts_code(address), "{address}");
        }
        assert!(!filter.accepts_code(i64::from(i32::MIN)), "a tag's hash");
        assert!(!filter.accepts_code(1_700_000_010_123), "a time of delivery");
    }

    #[test]
    fn long_lists_answer_like_short_ones() {
        let tags: Vec<String> = (0..50).map(|number| format!("tag-{number}")).collect();
        let filter = TagFilter::parse(&tags.join("||"));
        assert!(tags.iter().all(|tag| filter.accepts_code(tag_code(tag)) && filter.accepts_tag(Some(tag))));
        assert!(!filter.accepts_code(tag_code("tag-50")));
    }
}
