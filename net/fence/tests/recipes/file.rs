//! The recipe for a file: `net/fence/recipes/file.md`.

use palisade_fence::{Failed, Fence, FencedFile, FileError, Key, OperationId, Written};

use crate::{Answer, KEY, holds};

pub(crate) struct Resource(FencedFile);

impl Resource {
    pub(crate) fn open(address: &str) -> Resource {
        Resource(FencedFile::new(address, Key::new(KEY).unwrap()))
    }
}

fn answer(written: Result<Written, Failed<FileError>>) -> Answer {
    match written {
        Ok(Written::Now) => Answer::Written,
        Ok(Written::Before { epoch }) => Answer::Before { epoch: epoch.0 },
        Err(Failed::Refused(refused)) => Answer::Refused { floor: refused.floor },
        Err(e) => panic!("{e}"),
    }
}

impl crate::Resource for Resource {
    fn write(&mut self, fence: &Fence, text: &str, between: &mut dyn FnMut()) -> Answer {
        between();
        answer(self.0.write(fence, text.as_bytes()).map(|()| Written::Now))
    }

    fn once(&mut self, fence: &Fence, operation: &OperationId, text: &str) -> Answer {
        answer(self.0.write_once(fence, operation, text.as_bytes()))
    }

    fn read(&mut self) -> String {
        String::from_utf8(self.0.read().unwrap().unwrap_or_default()).unwrap()
    }
}

#[test]
fn a_file_refuses_a_zombie() {
    let dir = tempfile::tempdir().unwrap();
    holds("file", dir.path().join("report").to_str().unwrap());
}
