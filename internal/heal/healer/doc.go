// Package healer decides how a service is repaired. It does nothing itself. [Step] takes
// the state of an episode, which is one repair of one service, and one entry of its
// journal, and returns the next state and what is to be done. [Sense] says when what is
// seen of a service is a fault. [Breaker] says whether an episode may begin.
//
// # The ladder
//
//	look        what is wrong is found out, and which remedies there are, in their order
//	checkpoint  the tree is kept as it is; not for a remedy that changes no file
//	act         the remedy: a restart, a playbook, one attempt of a model
//	verify      good probes in a row, of one process, for longer than it lived before
//	review      whether the change only silences the symptom
//	commit      what was changed, and nothing else
//	rollback    after all that was not verified: the tree is as it was
//
// An episode that takes back the repair of another one has two of these: look finds out
// whether it may, and act does it.
//
// The status is what others see of it: suspected, healing, verifying, and in the end ready
// or broken.
//
// # What always holds
//
//   - One thing is being done at a time. An answer to anything else changes nothing.
//   - Nothing is committed that was not verified, and reviewed, by the same attempt.
//   - What was begun with a checkpoint ends with a commit or a rollback, never with both.
//   - An episode ends: remedies, workers, rollbacks and time are counted. Whoever reads the
//     journal after a death goes on, or rolls back; each worker more is counted, too.
//   - A rollback that does not succeed is said, and nothing more is tried.
//
// # The journal
//
// A file of JSON lines. Each is written, and on the disk, before what it leads to is
// done. A last line that is cut short was never acted upon, and is removed. [Fold] makes
// the state from the lines; so another worker goes on from the file alone.
package healer
