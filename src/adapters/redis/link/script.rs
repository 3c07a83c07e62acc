//! Calling a script.

use redis::{ErrorKind, FromRedisValue, RedisResult, ScriptInvocation, ServerErrorKind, aio::ConnectionLike};

/// Calls a script. The crate loads one that the server does not know, and asks once more; all scripts may be flushed in between,
/// and that is no answer. Whoever calls this has a limit.
pub(super) async fn invoke<T: FromRedisValue>(
    script: &ScriptInvocation<'_>,
    connection: &mut impl ConnectionLike,
) -> RedisResult<T> {
    loop {
        match script.invoke_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {}
            answer => return answer,
        }
    }
}
