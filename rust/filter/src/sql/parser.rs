//! Makes the tree of an expression, by recursive descent.

use super::evaluate::{self, Constant, Node, Operator, Search};
use super::lexer::{self, Kind, Token, Word};
use super::{SqlError, SqlFilter};

/// An operand and where it begins, for errors.
struct Operand {
    node: Node,
    at: usize,
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    depth: usize,
    /// Operators of one level that follow each other, as in `a = b = c`: each makes the tree deeper.
    chained: usize,
    names: Vec<Box<str>>,
    /// How often names are used.
    uses: usize,
}

/// Parses a whole expression. Returns the names of its properties too, and how often they are used.
pub(super) fn parse(text: &str) -> Result<(Node, Vec<Box<str>>, usize), SqlError> {
    let (size_bytes, limit_bytes) = (text.len(), SqlFilter::MAX_BYTES);
    if size_bytes > limit_bytes {
        return Err(SqlError::TooLong { size_bytes, limit_bytes });
    }
    let tokens = lexer::tokens(text)?.into_iter().peekable();
    let mut parser = Parser { tokens, depth: 0, chained: 0, names: Vec::new(), uses: 0 };
    let root = parser.any()?;
    if *parser.kind() != Kind::End {
        return Err(parser.unexpected("an operator or the end"));
    }
    Ok((condition(root)?, parser.names, parser.uses))
}

impl Parser {
    fn kind(&mut self) -> &Kind {
        self.tokens.peek().map_or(&Kind::End, |token| &token.kind)
    }

    /// The character at which the next token begins. The last token is never taken.
    fn at(&mut self) -> usize {
        self.tokens.peek().map_or(0, |token| token.at)
    }

    fn unexpected(&mut self, expected: &'static str) -> SqlError {
        SqlError::Unexpected { at: self.at(), found: self.kind().describe(), expected }
    }

    fn take(&mut self, kind: &Kind) -> bool {
        self.tokens.next_if(|token| token.kind == *kind).is_some()
    }

    fn take_word(&mut self, word: Word) -> bool {
        self.take(&Kind::Word(word))
    }

    fn take_symbol(&mut self, symbol: &'static str) -> bool {
        self.take(&Kind::Symbol(symbol))
    }

    fn expect(&mut self, kind: &Kind, expected: &'static str) -> Result<(), SqlError> {
        if self.take(kind) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn number_of(&mut self, name: Box<str>, at: usize) -> Result<usize, SqlError> {
        let limit = SqlFilter::MAX_NAMES;
        let known = self.names.iter().position(|known| *known == name);
        if known.is_none() && self.names.len() == limit {
            return Err(SqlError::TooManyNames { at, limit });
        }
        self.uses += 1;
        Ok(known.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        }))
    }

    fn text(&mut self) -> Result<Box<str>, SqlError> {
        if let Some(Token { kind: Kind::Text(text), .. }) =
            self.tokens.next_if(|token| matches!(token.kind, Kind::Text(_)))
        {
            return Ok(text);
        }
        Err(self.unexpected("a text in single quotes"))
    }

    fn any(&mut self) -> Result<Operand, SqlError> {
        self.joined(Word::Or, Self::all, Node::Any)
    }

    fn all(&mut self) -> Result<Operand, SqlError> {
        self.joined(Word::And, Self::equality, Node::All)
    }

    /// Operands with `word` between them, in one node: a long expression is not a deep one.
    fn joined(
        &mut self,
        word: Word,
        operand: fn(&mut Self) -> Result<Operand, SqlError>,
        node: fn(Vec<Node>) -> Node,
    ) -> Result<Operand, SqlError> {
        let first = operand(self)?;
        if *self.kind() != Kind::Word(word) {
            return Ok(first);
        }
        let at = first.at;
        let mut nodes = vec![condition(first)?];
        while self.take_word(word) {
            nodes.push(condition(operand(self)?)?);
        }
        Ok(Operand { node: node(nodes), at })
    }

    /// Another operator of the same level makes the tree deeper.
    fn chain(&mut self, is_first: bool) -> Result<(), SqlError> {
        let limit = SqlFilter::MAX_DEPTH;
        self.chained += usize::from(!is_first);
        if self.chained > limit { Err(SqlError::TooDeep { at: self.at(), limit }) } else { Ok(()) }
    }

    fn equality(&mut self) -> Result<Operand, SqlError> {
        let mut left = self.comparison()?;
        for is_first in std::iter::once(true).chain(std::iter::repeat(false)) {
            let at = left.at;
            let node = if self.take_word(Word::Is) {
                let not = self.take_word(Word::Not);
                self.expect(&Kind::Word(Word::Null), "NULL")?;
                negated_if(not, Node::IsNull(Box::new(left.node)))
            } else if let Some(not) = self.equal_sign() {
                let right = self.comparison()?;
                let (left, right) = (not_null(left)?, not_null(right)?);
                negated_if(not, Node::Compare(Operator::Equal, Box::new([left, right])))
            } else {
                break;
            };
            self.chain(is_first)?;
            left = Operand { node, at };
        }
        Ok(left)
    }

    /// Whether the operator is `<>` and not `=`; `None` without one.
    fn equal_sign(&mut self) -> Option<bool> {
        if self.take_symbol("=") { Some(false) } else { self.take_symbol("<>").then_some(true) }
    }

    fn comparison(&mut self) -> Result<Operand, SqlError> {
        let mut left = self.unary()?;
        for is_first in std::iter::once(true).chain(std::iter::repeat(false)) {
            let at = left.at;
            let node = if let Some(operator) = self.order_sign() {
                let right = self.unary()?;
                Node::Compare(operator, Box::new([ordered(left)?, ordered(right)?]))
            } else {
                let not = self.take_word(Word::Not);
                match self.word_operator() {
                    Some(word) => self.predicate(word, not, left)?,
                    None if self.is_like() => return Err(SqlError::Like { at: self.at() }),
                    None if not => {
                        return Err(self.unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"));
                    }
                    None => break,
                }
            };
            self.chain(is_first)?;
            left = Operand { node, at };
        }
        Ok(left)
    }

    fn order_sign(&mut self) -> Option<Operator> {
        let signs = [
            ("<", Operator::Less),
            ("<=", Operator::LessOrEqual),
            (">", Operator::Greater),
            (">=", Operator::GreaterOrEqual),
        ];
        signs.into_iter().find(|(sign, _)| self.take_symbol(sign)).map(|(_, operator)| operator)
    }

    fn word_operator(&mut self) -> Option<Word> {
        let words = [Word::Between, Word::In, Word::Contains, Word::StartsWith, Word::EndsWith];
        words.into_iter().find(|word| self.take_word(*word))
    }

    /// LIKE is no keyword: elsewhere it may name a property.
    fn is_like(&mut self) -> bool {
        matches!(self.kind(), Kind::Name(name) if name.eq_ignore_ascii_case("LIKE"))
    }

    /// What follows `left` and the keyword.
    fn predicate(&mut self, word: Word, not: bool, left: Operand) -> Result<Node, SqlError> {
        let search = match word {
            Word::Between => return self.between(not, left),
            Word::In => return self.list(not, left),
            Word::StartsWith => Search::Start,
            Word::EndsWith => Search::End,
            _ => Search::Anywhere,
        };
        Ok(Node::Search { search, operand: Box::new(left.node), text: self.text()?, not })
    }

    fn between(&mut self, not: bool, value: Operand) -> Result<Node, SqlError> {
        let value = ordered(value)?;
        let low = self.unary()?;
        let at = low.at;
        self.expect(&Kind::Word(Word::And), "AND")?;
        let high = self.unary()?;
        let (low, high) = (ordered(low)?, ordered(high)?);
        if let (Node::Constant(low), Node::Constant(high)) = (&low, &high)
            && evaluate::is_empty_range(low, high)
        {
            return Err(SqlError::EmptyRange { at });
        }
        Ok(negated_if(not, Node::Between(Box::new([value, low, high]))))
    }

    fn list(&mut self, not: bool, left: Operand) -> Result<Node, SqlError> {
        let Node::Property(name) = left.node else {
            let (at, found) = (left.at, "a value".to_owned());
            return Err(SqlError::Unexpected { at, found, expected: "the name of a property before IN" });
        };
        self.expect(&Kind::Symbol("("), "\"(\"")?;
        let mut texts = vec![self.text()?];
        while self.take_symbol(",") {
            texts.push(self.text()?);
        }
        self.expect(&Kind::Symbol(")"), "\",\" or \")\"")?;
        texts.sort_unstable();
        Ok(negated_if(not, Node::In { name, texts: texts.into() }))
    }

    fn unary(&mut self) -> Result<Operand, SqlError> {
        let (at, limit) = (self.at(), SqlFilter::MAX_DEPTH);
        if self.depth == limit {
            return Err(SqlError::TooDeep { at, limit });
        }
        self.depth += 1;
        let operand = if self.take_symbol("+") {
            self.unary()
        } else if self.take_symbol("-") {
            self.unary().map(|operand| Operand { node: operand.node.negative(), at })
        } else if self.take_word(Word::Not) {
            self.unary().and_then(|operand| Ok(Operand { node: negated_if(true, condition(operand)?), at }))
        } else {
            self.primary()
        };
        self.depth -= 1;
        operand
    }

    fn primary(&mut self) -> Result<Operand, SqlError> {
        let at = self.at();
        if self.take_symbol("(") {
            let inner = self.any()?;
            self.expect(&Kind::Symbol(")"), "an operator or \")\"")?;
            return Ok(Operand { node: inner.node, at });
        }
        let token = self.tokens.next_if(|token| !matches!(token.kind, Kind::Symbol(_) | Kind::End));
        let constant = match token.map(|token| token.kind) {
            Some(Kind::Name(name)) => {
                return Ok(Operand { node: Node::Property(self.number_of(name, at)?), at });
            }
            Some(Kind::Text(text)) => Constant::Text(text),
            Some(Kind::Long(number)) => Constant::Long(number),
            Some(Kind::Double(number)) => Constant::Double(number),
            Some(Kind::Word(Word::True)) => Constant::Bool(true),
            Some(Kind::Word(Word::False)) => Constant::Bool(false),
            Some(Kind::Word(Word::Null)) => Constant::Null,
            Some(kind) => {
                let found = kind.describe();
                return Err(SqlError::Unexpected {
                    at,
                    found,
                    expected: "a value or the name of a property",
                });
            }
            None => return Err(self.unexpected("a value or the name of a property")),
        };
        Ok(Operand { node: Node::Constant(constant), at })
    }
}

fn negated_if(not: bool, node: Node) -> Node {
    if not { Node::Not(Box::new(node)) } else { node }
}

/// The operand as a condition. A name may be one: the property is `true`.
fn condition(operand: Operand) -> Result<Node, SqlError> {
    match operand.node {
        Node::Constant(Constant::Long(_) | Constant::Double(_) | Constant::Text(_)) | Node::Negative(_) => {
            Err(SqlError::NotCondition { at: operand.at })
        }
        node => Ok(node),
    }
}

/// The operand of an operator for order: a number or a property.
fn ordered(operand: Operand) -> Result<Node, SqlError> {
    match operand.node {
        node @ (Node::Constant(Constant::Long(_) | Constant::Double(_))
        | Node::Negative(_)
        | Node::Property(_)) => Ok(node),
        _ => Err(SqlError::NotOrdered { at: operand.at }),
    }
}

fn not_null(operand: Operand) -> Result<Node, SqlError> {
    if operand.node == Node::Constant(Constant::Null) {
        return Err(SqlError::ComparedWithNull { at: operand.at });
    }
    Ok(operand.node)
}
