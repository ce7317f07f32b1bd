//! What the gate itself answers, in plain words and as JSON, so that people and programs know what to do next.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use palisade_fence::{ClusterIdentity, Epoch, Fence, Key, Refused, Unverified};
use serde_json::{Value, json};

/// The header of a request that shows its fence, as `key@epoch/barrier`. Forwarded to the resource.
pub const FENCE_HEADER: &str = "palisade-fence";

/// The header of a request that shows what the cluster has signed its fence with. A gate that verifies it does not forward it:
/// whoever has it can show it.
pub const SIGNATURE_HEADER: &str = "palisade-signature";

fn answer(status: StatusCode, error: &str, message: String, more: Value) -> Response {
    let mut body = json!({ "error": error, "message": message });
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json)], format!("{body}\n")).into_response()
}

fn again(mut response: Response, after: Duration) -> Response {
    let seconds = after.as_secs_f64().ceil().max(1.0);
    if let Ok(value) = HeaderValue::from_str(&format!("{seconds:.0}")) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

/// 428: the request changes something and shows no fence.
pub(crate) fn no_fence() -> Response {
    let message = format!("this resource is written under a lock: send the grant's fence in {FENCE_HEADER}");
    answer(StatusCode::PRECONDITION_REQUIRED, "no_fence", message, json!({}))
}

/// 400: what it shows is no fence.
pub(crate) fn bad_fence(why: &str) -> Response {
    answer(StatusCode::BAD_REQUEST, "bad_fence", format!("{FENCE_HEADER}: {why}"), json!({}))
}

/// 401: the fence is shown without a signature.
pub(crate) fn unsigned(cluster: ClusterIdentity) -> Response {
    let message = format!(
        "this gate takes only fences signed by the cluster {cluster}: send the grant's signature in {SIGNATURE_HEADER} (PALISADE_SIGNATURE; if the grant has none, the cluster has no fence_signing_key)"
    );
    let more = json!({ "cluster": cluster.to_string() });
    let mut response = answer(StatusCode::UNAUTHORIZED, "unsigned", message, more);
    // A 401 says how to do better (RFC 9110, section 15.5.2).
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Palisade-Signature"));
    response
}

/// 400: what it shows is no signature.
pub(crate) fn bad_signature(why: &str) -> Response {
    answer(StatusCode::BAD_REQUEST, "bad_signature", format!("{SIGNATURE_HEADER}: {why}"), json!({}))
}

/// 403: the cluster has not signed this fence, as far as the keys that are accepted tell.
pub(crate) fn unverified(refused: &Unverified) -> Response {
    let message = format!("{refused}. Stop; nothing was forwarded");
    answer(StatusCode::FORBIDDEN, "unverified", message, json!({ "cluster": refused.cluster.to_string() }))
}

/// 400: the path has other spellings.
pub(crate) fn bad_path() -> Response {
    let message = "a path that is protected is spelled plainly: no . or .., no double slash, backslash or semicolon, and nothing escaped that need not be; nothing was forwarded";
    answer(StatusCode::BAD_REQUEST, "bad_path", message.to_owned(), json!({}))
}

/// 403: the request names a second path.
pub(crate) fn second_path() -> Response {
    let message = "a request that names a second path (Destination) cannot be protected by one fence; nothing was forwarded";
    answer(StatusCode::FORBIDDEN, "second_path", message.to_owned(), json!({}))
}

/// 403: the fence is of another key than the one that protects this path.
pub(crate) fn wrong_key(wanted: Option<&Key>) -> Response {
    let message = match wanted {
        Some(key) => format!("this path is protected by the lock {key}: acquire that one"),
        None => "no lock protects this path, so nobody may write there through this gate".to_owned(),
    };
    answer(StatusCode::FORBIDDEN, "wrong_key", message, json!({ "wanted": wanted.map(|key| &**key) }))
}

/// 412: somebody newer has acted.
pub(crate) fn superseded(fence: &Fence, refused: Refused) -> Response {
    let message = format!(
        "superseded: {} was granted anew, and epoch {} or later has written; epoch {} is over. Stop; do not retry without a new grant",
        fence.key(),
        refused.floor,
        refused.epoch
    );
    let more = json!({ "key": &**fence.key(), "epoch": refused.epoch.0, "floor": refused.floor });
    answer(StatusCode::PRECONDITION_FAILED, "superseded", message, more)
}

/// 503: the outcome of an earlier write is unknown, and it may still take effect.
pub(crate) fn held_back(fence: &Fence, unknown: Epoch, left: Duration) -> Response {
    let message = format!(
        "a write of epoch {unknown} of {} has an unknown outcome and may still take effect; no later epoch passes for {} s",
        fence.key(),
        left.as_secs_f64().ceil()
    );
    let more = json!({ "key": &**fence.key(), "unknown_epoch": unknown.0 });
    again(answer(StatusCode::SERVICE_UNAVAILABLE, "held_back", message, more), left)
}

/// 503: too many requests, of this key or at all.
pub(crate) fn busy() -> Response {
    let message = "too many requests are under way; nothing was forwarded".to_owned();
    again(answer(StatusCode::SERVICE_UNAVAILABLE, "busy", message, json!({})), Duration::from_secs(1))
}

/// 503: the ledger failed.
pub(crate) fn no_ledger() -> Response {
    let message =
        "the gate cannot write its ledger, and without it nobody is admitted; nothing was forwarded"
            .to_owned();
    again(answer(StatusCode::SERVICE_UNAVAILABLE, "no_ledger", message, json!({})), Duration::from_secs(5))
}

/// 413: the body is longer than the gate forwards.
pub(crate) fn too_long(most: usize) -> Response {
    let message = format!("the body is longer than {most} bytes; nothing was forwarded");
    answer(StatusCode::PAYLOAD_TOO_LARGE, "too_long", message, json!({}))
}

/// 502: the resource could not be reached, so nothing has happened.
pub(crate) fn unreachable(why: &str) -> Response {
    let message = format!("the resource cannot be reached; nothing has happened: {why}");
    answer(StatusCode::BAD_GATEWAY, "unreachable", message, json!({}))
}

/// 504: nobody knows whether the write happened.
pub(crate) fn unknown(why: &str) -> Response {
    let message = format!(
        "the outcome is unknown ({why}): it may have happened, or may happen yet. Look at the resource, or repeat it under the same fence if it can be repeated"
    );
    answer(StatusCode::GATEWAY_TIMEOUT, "unknown", message, json!({}))
}
