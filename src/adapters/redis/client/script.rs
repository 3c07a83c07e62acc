//! Calls a script.

use redis::{ErrorKind, FromRedisValue, RedisResult, ScriptInvocation, ServerErrorKind, aio::ConnectionLike};

/// Calls a script. The redis crate loads a script that the server does not have, and calls it once more. All scripts
/// may be flushed in between, so this repeats the call until the script is found. The caller limits the time.
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
