//! Searching for events: one page of each type at a time, merged by due time.

use std::{collections::VecDeque, sync::Arc};

use futures_util::{Stream, TryStreamExt as _, stream};

use super::{
    backend::{Backend, Events},
    bulk::BATCH,
    error::EventsError,
    homes::{PAGE, homes, is_scattered, uncontested_of},
    selector::EventSelector,
};
#[cfg(feature = "internals")]
use crate::{domain::register::event_state::State, publish::new_event::NewEvent};
use crate::{
    domain::{
        register::{
            DedupSlot, Subject, Terms,
            event_info::EventInfo,
            filter::Filter,
            index::{Find, Found},
        },
        spec::TypeSpec,
        words::{EventType, Reference},
    },
    ports::RegisterError,
};

/// The events of one type, sorted by due time.
struct TypePages {
    next: Next,
    page: VecDeque<EventInfo>,
}

impl TypePages {
    const fn of(next: Next) -> Self {
        Self { next, page: VecDeque::new() }
    }
}

/// The next query of a lane.
enum Next {
    Page(Find),
    /// The events are under these keys.
    Look(Vec<Subject>),
    Nothing,
}

impl Events {
    /// Returns the events that are not finished, sorted by due time.
    ///
    /// There may be millions: the stream reads page by page, and holds one page of each type. Events that are published or
    /// finished during the search may be missing.
    ///
    /// The events of one reference are found by their key, except those that do not compete. These, and events of any other
    /// filter, are found by reading all events of the types in the requested time.
    ///
    /// An error ends the stream: a type that is not in the file, an invalid reference, or a Redis that does not answer
    /// ([`EventsError`]).
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use futures_util::TryStreamExt;
    /// use hatchery::Filter;
    ///
    /// let late = Filter::default().event_type("mail").due_before(jiff::Timestamp::now());
    /// let count = events.search(&late).try_fold(0, |count, _| async move { Ok(count + 1) }).await?;
    /// println!("{count} are late");
    /// # Ok(())
    /// # }
    /// ```
    pub fn search(
        &self,
        filter: &Filter,
    ) -> impl Stream<Item = Result<EventInfo, EventsError>> + Send + 'static + use<> {
        let (shared, filter) = (Arc::clone(&self.shared), filter.clone());
        let lanes = shared.lanes(&filter);
        let merged = move |lanes: Vec<TypePages>| Arc::clone(&shared).merged(filter.clone(), lanes);
        stream::iter([lanes]).map_ok(merged).try_flatten()
    }

    /// Returns all entries of the register for the selected events. Handled and cancelled events are included while the register
    /// remembers them.
    ///
    /// # Errors
    /// If the register does not answer, or the selection is invalid.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use hatchery::EventSelector;
    ///
    /// for event in events.show(&EventSelector::reference("hr-import", "1234")).await? {
    ///     println!("{}: {}, due {:?}", event.slot, event.state, event.due);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn show(&self, which: &EventSelector) -> Result<Vec<EventInfo>, EventsError> {
        let asked = self.shared.asked(which)?;
        let mut known = match asked.places() {
            Some(places) => self.shared.look_at(&places).await?,
            None => self.shared.look(&asked.homes()).await?,
        };
        known.retain(|event| asked.means(event));
        let filter = asked.filter();
        if let Some(find) = asked.elsewhere(&filter) {
            let others = Arc::clone(&self.shared).merged(filter, vec![TypePages::of(Next::Page(find))]);
            match others.try_collect::<Vec<_>>().await {
                Err(EventsError::Register(RegisterError::Unreadable { .. })) if asked.coalesces_all() => {
                    let event_type = &asked.subject.event_type;
                    tracing::warn!(%event_type, "the index cannot be read: what was published without a version is passed over");
                }
                others => {
                    for other in others? {
                        if asked.means(&other) && known.iter().all(|event| event.slot != other.slot) {
                            known.push(other);
                        }
                    }
                }
            }
        }
        for event in &mut known {
            self.shared.look_up_lease(event).await?;
        }
        Ok(known)
    }

    /// For the server of the API: returns the state of each event whose publisher has chosen its id and that competes with no other, if
    /// the register knows it.
    ///
    /// # Errors
    /// When the register does not answer.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub async fn states(&self, events: &[Option<&NewEvent>]) -> Result<Vec<Option<State>>, RegisterError> {
        let mut states = vec![None; events.len()];
        let (mut at, mut places) = (Vec::new(), Vec::new());
        for (number, event) in events.iter().enumerate() {
            if let Some(place) = event.and_then(|event| event.own_place(&self.shared.topology.types)) {
                at.push(number);
                places.push(place);
            }
        }
        for (at, places) in at.chunks(BATCH).zip(places.chunks(BATCH)) {
            let shown = self.shared.index.look_at(places).await?;
            for ((number, (subject, _)), shown) in at.iter().zip(places).zip(shown) {
                states[*number] = shown.map(|shown| EventInfo::of(subject, shown).state);
            }
        }
        Ok(states)
    }
}

impl Backend {
    fn lanes(&self, filter: &Filter) -> Result<Vec<TypePages>, EventsError> {
        let mut types: Vec<(&EventType, &TypeSpec)> = Vec::new();
        for name in &filter.types {
            let of_type = self.registered(name)?;
            if !types.contains(&of_type) {
                types.push(of_type);
            }
        }
        if filter.types.is_empty() {
            types.extend(self.topology.types.iter().filter(|(_, spec)| spec.register));
        }
        let reference = filter.reference.as_deref().map(str::parse::<Reference>).transpose()?;
        let lanes = |(event_type, spec): (&EventType, &TypeSpec)| {
            let subject = Subject {
                event_type: event_type.clone(),
                reference: reference.clone(),
                id: filter.id.clone().unwrap_or_default(),
            };
            let page = Next::Page(filter.find(event_type.clone(), PAGE));
            match uncontested_of(&subject, filter) {
                Some(find) => vec![TypePages::of(Next::Look(homes(&subject))), TypePages::of(Next::Page(find))],
                None if is_scattered(spec, &subject, self.topology.redis.shards) => vec![TypePages::of(page)],
                None => vec![TypePages::of(Next::Look(homes(&subject)))],
            }
        };
        Ok(types.into_iter().flat_map(lanes).collect())
    }

    /// Merges the events of all lanes by due time.
    fn merged(
        self: Arc<Self>,
        filter: Filter,
        lanes: Vec<TypePages>,
    ) -> impl Stream<Item = Result<EventInfo, EventsError>> + Send + 'static {
        stream::try_unfold((self, filter, lanes), |(shared, filter, mut lanes)| async move {
            let next = shared.next(&filter, &mut lanes).await?;
            Ok(next.map(|event| (event, (shared, filter, lanes))))
        })
    }

    /// Returns the next event of all lanes.
    async fn next(&self, filter: &Filter, lanes: &mut [TypePages]) -> Result<Option<EventInfo>, EventsError> {
        for lane in &mut *lanes {
            while lane.page.is_empty() && !matches!(lane.next, Next::Nothing) {
                self.turn(filter, lane).await?;
            }
        }
        let first = lanes.iter_mut().filter(|lane| !lane.page.is_empty()).min_by_key(|lane| lane.page[0].due);
        Ok(first.and_then(|lane| lane.page.pop_front()))
    }

    /// Reads a lane's next page, in which no event may match.
    async fn turn(&self, filter: &Filter, lane: &mut TypePages) -> Result<(), EventsError> {
        let (found, next) = match std::mem::replace(&mut lane.next, Next::Nothing) {
            Next::Nothing => return Ok(()),
            Next::Look(homes) => (self.look(&homes).await?, Next::Nothing),
            Next::Page(find) => {
                let Found { events, next } = self.index.find(&find).await?;
                let subject = Subject { event_type: find.event_type.clone(), reference: None, id: String::new() };
                let events = events.into_iter().map(|shown| EventInfo::of(&subject, shown)).collect();
                (events, next.map_or(Next::Nothing, |after| Next::Page(Find { after: Some(after), ..find })))
            }
        };
        lane.page = found.into_iter().filter(|event| filter.matches(event)).collect();
        lane.page.make_contiguous().sort_by_key(|event| event.due);
        lane.next = next;
        Ok(())
    }

    /// Looks up the lease of a started event, which a search has not read. It stays unknown if it is not stored with the
    /// slot: an event that competes with no other, of a type that excludes, has the lease of its reference.
    async fn look_up_lease(&self, event: &mut EventInfo) -> Result<(), EventsError> {
        let subject = event.subject();
        let is_beside = |terms: Terms| subject.leaseholder(&terms) == subject.home(&event.slot);
        if !self.terms(&event.event_type).is_some_and(is_beside) {
            event.leased = event.leased.filter(|leased| *leased);
        } else if event.running && event.leased.is_none() {
            let found = self.look_at(&[(subject, event.slot.clone())]).await?;
            event.leased = found.first().and_then(|found| found.leased);
        }
        Ok(())
    }

    /// Returns the entries of these slots.
    pub(super) async fn look_at(&self, places: &[(Subject, DedupSlot)]) -> Result<Vec<EventInfo>, EventsError> {
        let mut known = Vec::new();
        for batch in places.chunks(BATCH) {
            let shown = self.index.look_at(batch).await?;
            known.extend(
                batch.iter().zip(shown).filter_map(|((subject, _), shown)| Some(EventInfo::of(subject, shown?))),
            );
        }
        Ok(known)
    }

    /// Returns the entries of these keys.
    pub(super) async fn look(&self, homes: &[Subject]) -> Result<Vec<EventInfo>, EventsError> {
        let shown = self.index.look(homes).await?;
        let all = homes.iter().zip(shown);
        Ok(all.flat_map(|(home, shown)| shown.into_iter().map(move |shown| EventInfo::of(home, shown))).collect())
    }
}
