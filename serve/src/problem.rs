//! Answers that say what is wrong: `application/problem+json` (RFC 9457), in the words of the command line.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hatchery::{
    BrokerError, EventsError, PublishError,
    internals::{
        reason::cut_reason,
        words::{is_url_with_password, unless_url},
    },
};
use hatchery_admin::{
    AdminError,
    batch::{ChangeError, ChangedEvents, LineError},
    breakers::BreakersError,
    schedules::SchedulesError,
};
use schemars::JsonSchema;
use serde::Serialize;

/// The media type of a problem.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// The seconds after which a request may be repeated that the server could not carry out for now.
const RETRY_AFTER: &str = "1";

/// What is wrong with a request, or with what the server needs for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// The HTTP status in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong, in the words of the command line.
    detail: String,
    /// The id of the event, if it has one by then. Publish the event again under this id: if it has arrived all the same, it is no
    /// second one.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// How many events were published before the failure, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<usize>,
    /// Whether somebody else holds what the request needs, such as the letters of a queue.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    locked: bool,
    /// The events that were found, and why none of them was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Box<ChangedEvents>>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let (title, detail) = (status.canonical_reason().unwrap_or_default(), detail.into());
        // It may repeat what the request has.
        let detail = if is_url_with_password(&detail) { unless_url(&detail) } else { cut_reason(&detail) };
        Self {
            title,
            status: status.as_u16(),
            detail: detail.to_owned(),
            id: None,
            done: None,
            locked: false,
            changed: None,
        }
    }

    /// Returns the problem that the request is not as described.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Returns the problem that the request is as described, and asks for what cannot be: no schema can say that.
    pub(crate) fn wrong(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// Returns the problem that the server cannot carry out the request for now.
    pub(crate) fn for_now(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// Returns the problem that somebody else holds what the request needs.
    pub(crate) fn locked(detail: impl Into<String>) -> Self {
        Self { locked: true, ..Self::for_now(detail) }
    }

    /// Returns the problem that a limit of the server is reached.
    pub(crate) fn full(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail)
    }

    /// Adds the id of the request's event.
    pub(crate) fn of(self, id: String) -> Self {
        Self { id: Some(id).filter(|id| !is_url_with_password(id)), ..self }
    }

    /// Adds how many events were published before the failure.
    pub(crate) fn after(self, done: usize) -> Self {
        Self { done: Some(done).filter(|done| *done > 0), ..self }
    }

    /// Adds the events that were found and not changed.
    pub(crate) fn with(self, changed: ChangedEvents) -> Self {
        Self { changed: Some(Box::new(changed)), ..self }
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Texts and a number: they are always JSON.
        let json = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM)], json).into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
            }
            _ => {}
        }
        response
    }
}

impl From<LineError> for Problem {
    fn from(error: LineError) -> Self {
        match error {
            LineError::NotText(_) | LineError::Json(_) | LineError::NotAnObject => Self::bad(error.to_string()),
            _ => Self::wrong(error.to_string()),
        }
    }
}

impl From<PublishError> for Problem {
    fn from(error: PublishError) -> Self {
        let status = match error {
            PublishError::TooLarge { .. } | PublishError::Broker(BrokerError::TooLarge { .. }) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            PublishError::Broker(_) | PublishError::Timeout => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, error.to_string())
    }
}

impl From<EventsError> for Problem {
    fn from(error: EventsError) -> Self {
        let status = match error {
            EventsError::UnknownType(_) => StatusCode::NOT_FOUND,
            EventsError::OtherName { .. } => StatusCode::CONFLICT,
            EventsError::Register(_) | EventsError::Publish(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let status = match error {
            ChangeError::Events(error) => return error.into(),
            ChangeError::NoneWaits => StatusCode::NOT_FOUND,
            ChangeError::Runs | ChangeError::NotKept(_) => StatusCode::CONFLICT,
            ChangeError::NoTime => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, error.to_string())
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        let status = match error {
            AdminError::UnknownName { .. } => StatusCode::NOT_FOUND,
            AdminError::Past(_) => StatusCode::UNPROCESSABLE_ENTITY,
            AdminError::Switches { .. } => StatusCode::CONFLICT,
            AdminError::Held(_) | AdminError::SwitchesHeld(_) => return Self::locked(error.to_string()),
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<BreakersError> for Problem {
    fn from(error: BreakersError) -> Self {
        let status = match error {
            BreakersError::UnknownType(_) => StatusCode::NOT_FOUND,
            BreakersError::NoBreaker(_) | BreakersError::NotShared(_) => StatusCode::UNPROCESSABLE_ENTITY,
            BreakersError::NoState(_) => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<SchedulesError> for Problem {
    fn from(error: SchedulesError) -> Self {
        let status = match error {
            SchedulesError::Unknown { .. } => StatusCode::NOT_FOUND,
            SchedulesError::NotApplied(_) | SchedulesError::AnotherDefinition(_) => StatusCode::CONFLICT,
            SchedulesError::NoInstants(_) | SchedulesError::Id(_) => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use hatchery::RegisterError;
    use rstest::rstest;

    use super::*;

    fn away() -> BrokerError {
        BrokerError::Unreachable { url: "amqp://h".to_owned(), reason: "refused".to_owned() }
    }

    #[rstest]
    #[case(Problem::from(LineError::NotAnObject), 400, "not a JSON object")]
    #[case(PublishError::TooLarge { length: 2, limit: 1 }.into(), 413, "the payload has 2 bytes, more than max-payload (1)")]
    #[case(PublishError::TooLate.into(), 422, "the delay or the expiry leads beyond the year 9999")]
    #[case(PublishError::from(away()).into(), 503, "not confirmed: the broker at amqp://h is unreachable: refused")]
    #[case(EventsError::Id(256).into(), 422, "an id has 1 to 255 bytes, this one has 256")]
    #[case(
        EventsError::Register(RegisterError::Address("no host")).into(),
        503,
        "not the address of a Redis: no host"
    )]
    #[case(ChangeError::NoneWaits.into(), 404, "no such event waits")]
    #[case(ChangeError::Runs.into(), 409, "the event runs")]
    fn a_problem_has_the_words_of_the_command_line(
        #[case] problem: Problem,
        #[case] status: u16,
        #[case] detail: &str,
    ) {
        assert_eq!((problem.status, problem.detail()), (status, detail));
        let response = problem.clone().of("a".to_owned()).into_response();
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM);
        assert_eq!(response.headers().contains_key(header::RETRY_AFTER), status == 503);
        let json = serde_json::to_value(problem).expect("JSON");
        assert_eq!((&json["status"], json.get("id")), (&status.into(), None));
    }

    #[test]
    fn a_problem_says_whether_somebody_else_holds_what_the_request_needs() {
        let held = Problem::from(AdminError::SwitchesHeld("t.control.lock".to_owned()));
        let away = Problem::from(AdminError::from(away()));
        let said = |problem: Problem| serde_json::to_value(problem).expect("JSON").get("locked").cloned();
        assert_eq!((said(held), said(away)), (Some(true.into()), None));
    }

    #[test]
    fn neither_the_words_nor_the_id_of_a_problem_repeat_a_password() {
        let url = "amqp://u:s3cret@h";
        let problem = Problem::bad(format!("there is no schedule `{url}`")).of(format!("nightly!{url}"));
        assert!(!serde_json::to_string(&problem).expect("JSON").contains("s3cret"), "{problem:?}");
    }
}
