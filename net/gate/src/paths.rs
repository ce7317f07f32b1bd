//! Which paths mean what they look like. A resource may resolve `.` and `..`, join slashes and decode escapes; the gate
//! compares the beginnings of paths as they come, so it lets only those through of which there is one spelling.

/// Whether a path has no other spelling that a resource might take it for.
pub(crate) fn is_plain(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let mut segments = rest.split('/').peekable();
    while let Some(segment) = segments.next() {
        // A slash at the end is a spelling of its own.
        if segment.is_empty() && segments.peek().is_some() {
            return false;
        }
        if matches!(segment, "." | "..") || !is_plain_segment(segment.as_bytes()) {
            return false;
        }
    }
    true
}

fn is_plain_segment(segment: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&byte) = segment.get(at) {
        at += 1;
        match byte {
            // Some resources cut a path at a semicolon.
            b'\\' | b';' => return false,
            b'%' => {
                let digits = segment.get(at..at + 2).and_then(|d| std::str::from_utf8(d).ok());
                let Some(escaped) = digits.and_then(|d| u8::from_str_radix(d, 16).ok()) else { return false };
                let needless = escaped.is_ascii_alphanumeric() || b"-._~/\\;%".contains(&escaped);
                if needless || escaped.is_ascii_control() {
                    return false;
                }
                at += 2;
            }
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn one_spelling_each() {
        for plain in ["/", "/a", "/a/", "/a/b.c", "/a%20b", "/%C3%A9", "/...", "/a..b", "/a:b@c,d"] {
            assert!(is_plain(plain), "{plain}");
        }
        let others = [
            "",
            "a",
            "//",
            "//a",
            "/a//b",
            "/.",
            "/./a",
            "/a/..",
            "/a/../b",
            "/%2e%2e/b",
            "/a%2fb",
            "/a%5Cb",
            "/a\\b",
            "/%61",
            "/a%252e",
            "/a;b",
            "/a%3bb",
            "/a%0a",
            "/a%",
            "/a%2",
            "/a%zz",
            "/%2E",
            "/a/%2e/",
        ];
        for other in others {
            assert!(!is_plain(other), "{other}");
        }
    }
}
