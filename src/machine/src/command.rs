//! The commands of the log. Their bytes are in `bytes.rs`.
//!
//! A command is encoded once, by the leader, into its block. Every replica decodes it again when it
//! applies it, borrowing the names from the block ([`CommandRef`]), so that an acquire of a known
//! key allocates nothing; nor are the names of an acquire checked, for the name of a record has been,
//! and most acquires are of a key that has one.

mod bytes;

use alloc::vec::Vec;

use palisade_types::{
    ActRef, Cause, Class, DecodeError, Key, Mode, Name, OnDeath, OperatorAct, SessionId, SessionToken,
    Ticket, Value,
};

/// What a replica is told to do. No command (zero bytes) is also one: it does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Opens a session, or finds the live one with this token.
    OpenSession {
        /// Drawn by the client.
        token: SessionToken,
        /// TTL in milliseconds; 0 asks for the default.
        ttl_ms: u32,
        /// Free tag.
        owner: Option<Name>,
        /// Free tag.
        incarnation: Option<Name>,
    },
    /// Ends a session.
    EndSession {
        /// Which.
        session: SessionId,
        /// Why; never [`Cause::Forgotten`].
        cause: Cause,
        /// How many of its keys to release in this same entry; the rest joins the backlog.
        release_now: u32,
    },
    /// Releases keys of ended sessions from the backlog.
    Sweep {
        /// How many.
        releases: u32,
    },
    /// Claims a key.
    Acquire {
        /// Whose claim.
        session: SessionId,
        /// The number of the claim.
        ticket: Ticket,
        /// What is claimed.
        key: Key,
        /// What the lock is for.
        class: Class,
        /// What it protects; a fenced claim must say.
        resource: Option<Name>,
        /// Alone, or with others of this mode.
        mode: Mode,
        /// Whether to stand in the queue when the key is held.
        wait: bool,
        /// What becomes of the key should the session die with it.
        on_death: OnDeath,
    },
    /// Gives a claim up, whether it holds or waits.
    Release {
        /// Whose claim.
        session: SessionId,
        /// The ticket of its acquire.
        ticket: Ticket,
    },
    /// Gives a claim up unless it holds.
    Cancel {
        /// Whose claim.
        session: SessionId,
        /// The ticket of its acquire.
        ticket: Ticket,
        /// Its time to wait ran out, rather than its client's patience.
        timeout: bool,
    },
    /// An operator acts on another's session or key, and is put on record.
    Operator {
        /// Who.
        by: Name,
        /// Why.
        reason: Name,
        /// What is to be done.
        act: OperatorAct,
        /// Where a session is ended: how many of its keys to release in this same entry.
        release_now: u32,
    },
    /// Turns an exclusive grant into a shared one, as a new grant under a new ticket.
    Downgrade {
        /// Whose claim.
        session: SessionId,
        /// The ticket that takes over the claim.
        ticket: Ticket,
        /// The ticket that holds it.
        holds: Ticket,
    },
    /// Claims an election, with a value.
    Campaign {
        /// Whose claim.
        session: SessionId,
        /// The number of the claim.
        ticket: Ticket,
        /// The election.
        key: Key,
        /// What observers are shown once the campaign has won.
        value: Value,
        /// Whether to stand in the queue when somebody leads.
        wait: bool,
    },
    /// Changes the value of a leader.
    Proclaim {
        /// Whose.
        session: SessionId,
        /// The number of this command.
        ticket: Ticket,
        /// The ticket of the campaign that won.
        leads: Ticket,
        /// The new value.
        value: Value,
    },
    /// Gives an ephemeral key of the session a value.
    Put {
        /// Whose key.
        session: SessionId,
        /// The number of the command.
        ticket: Ticket,
        /// Which key.
        key: Key,
        /// At most [`palisade_types::limits::VALUE_BYTES_MAX`] bytes.
        value: Value,
    },
    /// Removes an ephemeral key of the session.
    Delete {
        /// Whose key.
        session: SessionId,
        /// The number of the command.
        ticket: Ticket,
        /// Which key.
        key: Key,
    },
    /// Puts a key's claim to a resource on record, or makes it the newest.
    ClaimResource {
        /// What is protected.
        resource: Name,
        /// By which lock.
        key: Key,
    },
}

/// A [`Command`] whose names are borrowed from its bytes. Those of an acquire are not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRef<'a> {
    /// See [`Command::OpenSession`].
    OpenSession {
        /// Drawn by the client.
        token: SessionToken,
        /// TTL in milliseconds; 0 asks for the default.
        ttl_ms: u32,
        /// Free tag.
        owner: Option<&'a str>,
        /// Free tag.
        incarnation: Option<&'a str>,
    },
    /// See [`Command::EndSession`].
    EndSession {
        /// Which.
        session: SessionId,
        /// Why.
        cause: Cause,
        /// How many of its keys to release in this same entry.
        release_now: u32,
    },
    /// See [`Command::Sweep`].
    Sweep {
        /// How many.
        releases: u32,
    },
    /// See [`Command::Acquire`].
    Acquire {
        /// Whose claim.
        session: SessionId,
        /// The number of the claim.
        ticket: Ticket,
        /// What is claimed: a name, or not.
        key: &'a [u8],
        /// What the lock is for.
        class: Class,
        /// What it protects: a name, or not.
        resource: Option<&'a [u8]>,
        /// Alone, or with others of this mode.
        mode: Mode,
        /// Whether to stand in the queue.
        wait: bool,
        /// What becomes of the key should the session die with it.
        on_death: OnDeath,
    },
    /// See [`Command::Release`].
    Release {
        /// Whose claim.
        session: SessionId,
        /// The ticket of its acquire.
        ticket: Ticket,
    },
    /// See [`Command::Cancel`].
    Cancel {
        /// Whose claim.
        session: SessionId,
        /// The ticket of its acquire.
        ticket: Ticket,
        /// Its time to wait ran out.
        timeout: bool,
    },
    /// See [`Command::Operator`].
    Operator {
        /// Who.
        by: &'a str,
        /// Why.
        reason: &'a str,
        /// What is to be done.
        act: ActRef<'a>,
        /// How many keys to release in this same entry.
        release_now: u32,
    },
    /// See [`Command::Downgrade`].
    Downgrade {
        /// Whose claim.
        session: SessionId,
        /// The ticket that takes over the claim.
        ticket: Ticket,
        /// The ticket that holds it.
        holds: Ticket,
    },
    /// See [`Command::Campaign`].
    Campaign {
        /// Whose claim.
        session: SessionId,
        /// The number of the claim.
        ticket: Ticket,
        /// The election: a name, or not.
        key: &'a [u8],
        /// What observers are shown.
        value: &'a [u8],
        /// Whether to stand in the queue.
        wait: bool,
    },
    /// See [`Command::Proclaim`].
    Proclaim {
        /// Whose.
        session: SessionId,
        /// The number of this command.
        ticket: Ticket,
        /// The ticket of the campaign that won.
        leads: Ticket,
        /// The new value.
        value: &'a [u8],
    },
    /// See [`Command::Put`].
    Put {
        /// Whose key.
        session: SessionId,
        /// The number of the command.
        ticket: Ticket,
        /// Which key.
        key: &'a str,
        /// Its bytes.
        value: &'a [u8],
    },
    /// See [`Command::Delete`].
    Delete {
        /// Whose key.
        session: SessionId,
        /// The number of the command.
        ticket: Ticket,
        /// Which key.
        key: &'a str,
    },
    /// See [`Command::ClaimResource`].
    ClaimResource {
        /// What is protected.
        resource: &'a str,
        /// By which lock.
        key: &'a str,
    },
}

impl Command {
    /// No command has more bytes than this.
    pub const BYTES_MAX: usize = bytes::CAMPAIGN_BYTES_MAX;
    /// No command but those that carry a value, has more bytes than this.
    pub const PLAIN_BYTES_MAX: usize = bytes::OPERATOR_BYTES_MAX;

    /// Appends the bytes of the command.
    ///
    /// # Panics
    /// On [`Cause::Forgotten`]: nothing ever ends for that reason; and on the causes that are
    /// operators', whose command is another.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.as_ref().encode(out);
    }

    /// The command of these bytes.
    ///
    /// # Errors
    /// When they are not exactly one command.
    pub fn decode(bytes: &[u8]) -> Result<Command, DecodeError> {
        CommandRef::decode(bytes)?.to_command()
    }

    /// The same command with borrowed names.
    pub fn as_ref(&self) -> CommandRef<'_> {
        match *self {
            Command::OpenSession { token, ttl_ms, ref owner, ref incarnation } => CommandRef::OpenSession {
                token,
                ttl_ms,
                owner: owner.as_deref(),
                incarnation: incarnation.as_deref(),
            },
            Command::EndSession { session, cause, release_now } => {
                CommandRef::EndSession { session, cause, release_now }
            }
            Command::Sweep { releases } => CommandRef::Sweep { releases },
            Command::Acquire { session, ticket, ref key, class, ref resource, mode, wait, on_death } => {
                let (key, resource) = (key.as_bytes(), resource.as_ref().map(|name| name.as_bytes()));
                CommandRef::Acquire { session, ticket, key, class, resource, mode, wait, on_death }
            }
            Command::Release { session, ticket } => CommandRef::Release { session, ticket },
            Command::Cancel { session, ticket, timeout } => CommandRef::Cancel { session, ticket, timeout },
            Command::Operator { ref by, ref reason, ref act, release_now } => {
                CommandRef::Operator { by, reason, act: act.as_ref(), release_now }
            }
            Command::Downgrade { session, ticket, holds } => CommandRef::Downgrade { session, ticket, holds },
            Command::Campaign { session, ticket, ref key, ref value, wait } => {
                CommandRef::Campaign { session, ticket, key: key.as_bytes(), value, wait }
            }
            Command::Proclaim { session, ticket, leads, ref value } => {
                CommandRef::Proclaim { session, ticket, leads, value }
            }
            Command::Put { session, ticket, ref key, ref value } => {
                CommandRef::Put { session, ticket, key, value }
            }
            Command::Delete { session, ticket, ref key } => CommandRef::Delete { session, ticket, key },
            Command::ClaimResource { ref resource, ref key } => CommandRef::ClaimResource { resource, key },
        }
    }
}

impl CommandRef<'_> {
    fn to_command(self) -> Result<Command, DecodeError> {
        Ok(match self {
            CommandRef::OpenSession { token, ttl_ms, owner, incarnation } => Command::OpenSession {
                token,
                ttl_ms,
                owner: owner.map(Name::new).transpose()?,
                incarnation: incarnation.map(Name::new).transpose()?,
            },
            CommandRef::EndSession { session, cause, release_now } => {
                Command::EndSession { session, cause, release_now }
            }
            CommandRef::Sweep { releases } => Command::Sweep { releases },
            CommandRef::Acquire { session, ticket, key, class, resource, mode, wait, on_death } => {
                let (key, resource) = (Key::from_bytes(key)?, resource.map(Name::from_bytes).transpose()?);
                Command::Acquire { session, ticket, key, class, resource, mode, wait, on_death }
            }
            CommandRef::Release { session, ticket } => Command::Release { session, ticket },
            CommandRef::Cancel { session, ticket, timeout } => Command::Cancel { session, ticket, timeout },
            CommandRef::Operator { by, reason, act, release_now } => Command::Operator {
                by: Name::new(by)?,
                reason: Name::new(reason)?,
                act: act.to_act()?,
                release_now,
            },
            CommandRef::Downgrade { session, ticket, holds } => Command::Downgrade { session, ticket, holds },
            CommandRef::Campaign { session, ticket, key, value, wait } => Command::Campaign {
                session,
                ticket,
                key: Key::from_bytes(key)?,
                value: Value::from(value),
                wait,
            },
            CommandRef::Proclaim { session, ticket, leads, value } => {
                Command::Proclaim { session, ticket, leads, value: Value::from(value) }
            }
            CommandRef::Put { session, ticket, key, value } => {
                Command::Put { session, ticket, key: Key::new(key)?, value: Value::from(value) }
            }
            CommandRef::Delete { session, ticket, key } => {
                Command::Delete { session, ticket, key: Key::new(key)? }
            }
            CommandRef::ClaimResource { resource, key } => {
                Command::ClaimResource { resource: Name::new(resource)?, key: Key::new(key)? }
            }
        })
    }
}
