//! The recipe for an object store with conditional puts: `net/fence/recipes/object_store.md`.

use std::time::Duration;

use palisade_fence::{Fence, Key, OperationId, Record, Step};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::StatusCode;

use crate::servers::ObjectStore;
use crate::{Answer, KEY, holds, is_found};

/// Which of the recipes.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// Put if the object is still the one that was read.
    Conditional,
    /// A bug: put, whatever the object is by now.
    ChecksBefore,
}

const OBJECT: &str = "daily";
const SIGNED_FOR: Duration = Duration::from_secs(60);
const OPERATIONS_KEPT: usize = 1000;

pub(crate) struct Resource {
    bucket: Bucket,
    credentials: Credentials,
    agent: Agent,
    key: Key,
    how: How,
}

impl Resource {
    pub(crate) fn open(address: &str, how: How) -> Resource {
        let bucket = Bucket::new(address.parse().unwrap(), UrlStyle::Path, "reports", "us-east-1").unwrap();
        let agent = Agent::config_builder().http_status_as_error(false).build().into();
        let key = Key::new(KEY).unwrap();
        let resource = Resource { bucket, credentials: Credentials::new("test", "test"), agent, key, how };
        let create = resource.bucket.create_bucket(&resource.credentials).sign(SIGNED_FOR);
        resource.agent.put(create.as_str()).send_empty().unwrap();
        resource
    }

    /// The object and its entity tag.
    fn get(&self) -> Option<(Vec<u8>, String)> {
        let url = self.bucket.get_object(Some(&self.credentials), OBJECT).sign(SIGNED_FOR);
        let mut got = self.agent.get(url.as_str()).call().unwrap();
        if got.status() == StatusCode::NOT_FOUND {
            return None;
        }
        assert_eq!(got.status(), StatusCode::OK);
        let tag = got.headers()["etag"].to_str().unwrap().to_owned();
        Some((got.body_mut().read_to_vec().unwrap(), tag))
    }

    /// Puts the object if it is still the one with this tag, or still is not there. False if another came first.
    fn put(&self, bytes: &[u8], tag: Option<&str>) -> bool {
        let url = self.bucket.put_object(Some(&self.credentials), OBJECT).sign(SIGNED_FOR);
        let put = self.agent.put(url.as_str()).content_type("application/octet-stream");
        let put = match (self.how, tag) {
            (How::ChecksBefore, _) => put,
            (How::Conditional, Some(tag)) => put.header("If-Match", tag),
            (How::Conditional, None) => put.header("If-None-Match", "*"),
        };
        match put.send(bytes).unwrap().status() {
            StatusCode::OK => true,
            // S3 answers CONFLICT when another put is under way.
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => false,
            other => panic!("{other}"),
        }
    }

    fn replace(
        &self,
        fence: &Fence,
        operation: Option<&OperationId>,
        text: &str,
        between: &mut dyn FnMut(),
    ) -> Answer {
        loop {
            let got = self.get();
            let (bytes, tag) = got.as_ref().map_or((&[][..], None), |(b, t)| (&b[..], Some(t.as_str())));
            let record = match tag {
                Some(_) => Record::open(bytes, &self.key).unwrap().0,
                None => Record::default(),
            };
            let next = match record.admit(fence, operation, OPERATIONS_KEPT) {
                Ok(Step::Write(next)) => next,
                Ok(Step::Before { epoch, raised: None }) => return Answer::Before { epoch: epoch.0 },
                // The same content under a higher floor.
                Ok(Step::Before { epoch, raised: Some(raised) }) => {
                    let (_, same) = Record::open(bytes, &self.key).unwrap();
                    if self.put(&raised.seal(&self.key, same), tag) {
                        return Answer::Before { epoch: epoch.0 };
                    }
                    continue;
                }
                Err(refused) => return Answer::Refused { floor: refused.floor },
            };
            between();
            if self.put(&next.seal(&self.key, text.as_bytes()), tag) {
                return Answer::Written;
            }
        }
    }
}

impl crate::Resource for Resource {
    fn write(&mut self, fence: &Fence, text: &str, between: &mut dyn FnMut()) -> Answer {
        self.replace(fence, None, text, between)
    }

    fn once(&mut self, fence: &Fence, operation: &OperationId, text: &str) -> Answer {
        self.replace(fence, Some(operation), text, &mut || ())
    }

    fn read(&mut self) -> String {
        let (bytes, _) = self.get().unwrap();
        String::from_utf8(Record::open(&bytes, &self.key).unwrap().1.to_vec()).unwrap()
    }
}

#[test]
fn an_object_store_refuses_a_zombie() {
    let Some(store) = ObjectStore::start() else { return };
    holds("object", &store.address());
}

#[test]
fn an_object_put_whatever_is_there_by_now_is_found() {
    let Some(store) = ObjectStore::start() else { return };
    is_found("object-checks-before", &store.address());
}

/// What the recipe stands on, so it is looked at and not believed.
#[test]
fn the_store_lets_one_of_many_conditional_puts_win() {
    let Some(store) = ObjectStore::start() else { return };
    let first = Resource::open(&store.address(), How::Conditional);
    assert!(first.put(b"round 0", None) && !first.put(b"again", None));
    for round in 1..=20 {
        let (_, tag) = first.get().unwrap();
        let won: usize = std::thread::scope(|scope| {
            let put = |n: u32| {
                let (tag, address) = (&tag, store.address());
                scope.spawn(move || {
                    let writer = Resource::open(&address, How::Conditional);
                    usize::from(writer.put(format!("round {round} by {n}").as_bytes(), Some(tag)))
                })
            };
            let writers: Vec<_> = (0..4).map(put).collect();
            writers.into_iter().map(|w| w.join().unwrap()).sum()
        });
        assert_eq!(won, 1, "in round {round}");
    }
}
