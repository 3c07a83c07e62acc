//! The page for people: hand-written files that are part of the program, and that know the topology only by the API.

use std::{
    fmt::Write as _,
    sync::{Arc, LazyLock},
};

use axum::{
    Router,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse as _, Response},
    routing::get,
};
use ring::digest::{Context, SHA256};

use crate::{api::Api, guard::guard, tokens::Right};

/// Nothing of elsewhere, and nothing that is written into the document itself: what people have put into an event cannot run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

const HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    // The browser asks each time whether it has the files of this version, and gets them only if not.
    (header::CACHE_CONTROL, "no-cache"),
];

struct File {
    path: &'static str,
    media_type: &'static str,
    text: &'static str,
}

macro_rules! file {
    ($name:literal, $media_type:literal) => {
        File {
            path: concat!("/page/", $name),
            media_type: concat!($media_type, "; charset=utf-8"),
            text: include_str!(concat!("page/", $name)),
        }
    };
}

const FILES: &[File] = &[
    File { path: "/", media_type: "text/html; charset=utf-8", text: include_str!("page/index.html") },
    file!("icon.svg", "image/svg+xml"),
    file!("base.css", "text/css"),
    file!("parts.css", "text/css"),
    file!("views.css", "text/css"),
    file!("main.js", "text/javascript"),
    file!("ask.js", "text/javascript"),
    file!("dialog.js", "text/javascript"),
    file!("dom.js", "text/javascript"),
    file!("events.js", "text/javascript"),
    file!("flow.js", "text/javascript"),
    file!("letters.js", "text/javascript"),
    file!("live.js", "text/javascript"),
    file!("now.js", "text/javascript"),
    file!("schedules.js", "text/javascript"),
    file!("sweep.js", "text/javascript"),
    file!("table.js", "text/javascript"),
    file!("timeline.js", "text/javascript"),
    file!("topology.js", "text/javascript"),
    file!("words.js", "text/javascript"),
];

/// The tag of all files, which belong together.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let mut files = Context::new(&SHA256);
    for file in FILES {
        files.update(file.text.as_bytes());
    }
    let mut tag = String::from("\"");
    for byte in &files.finish().as_ref()[..12] {
        let _ = write!(tag, "{byte:02x}");
    }
    tag + "\""
});

/// Returns the routes of the page. They take no token, because the files hold nothing; without tokens they answer this machine alone.
pub(crate) fn routes(api: &Arc<Api>) -> Router<Arc<Api>> {
    FILES.iter().fold(Router::new(), |router, file| {
        let answered = get(async move |headers: HeaderMap| answer(file, &headers));
        router.route(file.path, answered.route_layer(from_fn_with_state((Arc::clone(api), Right::None), guard)))
    })
}

fn answer(file: &File, request: &HeaderMap) -> Response {
    let is_known = request.get_all(header::IF_NONE_MATCH).iter().any(|tag| tag.as_bytes() == TAG.as_bytes());
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, file.media_type)], file.text).into_response()
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    // Hexadecimal digits are always a value.
    headers.extend(HeaderValue::from_str(&TAG).map(|tag| (header::ETAG, tag)));
    response
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
        let names = fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").file_name());
        let names: BTreeSet<String> = names.map(|name| name.into_string().expect("a name")).collect();
        let is_index = |path: &str| if path == "/" { "index.html" } else { &path["/page/".len()..] }.to_owned();
        assert_eq!(FILES.iter().map(|file| is_index(file.path)).collect::<BTreeSet<_>>(), names);
    }

    #[test]
    fn no_file_makes_markup_of_a_text() {
        let ways =
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "Function("];
        for file in FILES {
            let used: Vec<_> = ways.iter().filter(|way| file.text.contains(**way)).collect();
            assert_eq!(used, Vec::<&&str>::new(), "{}", file.path);
            assert!(!file.text.contains("style=") && !file.text.contains(" onclick"), "{}", file.path);
            assert!(!["localStorage", "sessionStorage", "document.cookie"].iter().any(|kept| file.text.contains(kept)));
        }
    }

    #[test]
    fn a_browser_that_has_the_files_gets_them_once() {
        let first = answer(&FILES[0], &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].clone();
        let second = answer(&FILES[1], &HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)]));
        assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(second.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}
