package failpoint

// Point is a place in a role.
type Point int

// The points. What has happened by then is in the comment, and what has not.
const (
	// A start, in the keeper.
	SpawnReserved   Point = iota // the slot is taken; nothing is on disk
	SpawnSpec                    // the spec is in the journal; there are no pipes
	SpawnVaulted                 // both vaults have the pipes
	SpawnForking                 // the board says that a fork is coming; it is not done
	SpawnLimited                 // the groups with its limits are there; nobody is in them
	SpawnForked                  // the program runs; only a script has its pid on the board
	SpawnNoted                   // the board has the pid; no vault has the pidfd
	SpawnPidfd                   // the vaults have the pidfd; the directory has no name
	SpawnSettled                 // the directory has its name; the journal has no start
	SpawnRecorded                // the journal has the start; the board does not
	SpawnAnnounced               // the board has the start; nothing is watched yet
	SpawnUnanswered              // everything is done but the answer

	// Output, in the keeper.
	Spliced      // bytes are in the file; there is no index record
	Indexed      // the index record is there; the board does not say so
	Staged       // a terminal's bytes are in the staging pipe, not in the file
	TrimBase     // the board has the new base; there is no trim record
	TrimRecorded // the trim record is there; nothing is punched
	TrimPunched  // data is punched; the index is not
	Resized      // the terminal has another size; the index does not say so

	// The exit, in the keeper.
	ExitSeen      // the status is known; nothing is drained nor written
	ExitDrained   // the pipes are empty; nothing is written
	ExitRecorded  // the journal has the exit; the board does not
	ExitAnnounced // the board has it; the process is not reaped
	ExitSynced    // it is on the disk; the board does not have it
	TreeRecorded  // the journal knows that the tree is gone; the board does not
	Final         // the board says final; the vaults hold the descriptors
	Retired       // the server gave the slot back; it is not free yet

	// Input: the keeper, but for Fed, where it is keeper or server.
	StdinMade   // the memory of the input is there; no vault has it
	Fed         // bytes are on their way; the board does not say so
	StdinClosed // the keeper's end is closed; the vaults' are not

	// A kill, in the keeper.
	KillNoted // the board has the cause; no signal is sent
	KillSent  // the signal is sent; nothing is answered

	// An upgrade in place, in the keeper.
	UpgradeFrozen   // everything stands still; there is no snapshot
	UpgradeSnapshot // the snapshot is written; the program is the old one
	UpgradeDecoded  // the new program has read the snapshot, and done nothing
	UpgradeRestored // it has everything; nothing runs yet

	// A keeper that takes over after a crash.
	TakeoverFetched    // it has the vaults' descriptors; it has looked at none
	TakeoverGlobals    // it has the board; no process is adopted
	TakeoverRestored   // one process more is restored
	TakeoverDone       // all are; nothing runs yet
	HalfStartFound     // a half-done start is found running; its directory may have no name
	HalfStartCompleted // that start is on the board; nothing is watched
	UndoKilled         // a half-done start is ended; its directory is there
	VaultRefilled      // one process more is deposited again

	// The anchor, and for OrphanRecorded the launcher too.
	AnchorHeld     // it holds the role; it looks for the others
	AnchorResumed  // it has found or started the keeper; not the server
	KeeperForked   // another keeper runs; nobody wrote that down
	VaultMarked    // a keeper deposits everything again; nothing of it came
	VaultPut       // descriptors have arrived
	VaultSent      // a new keeper got one process's descriptors, not all
	OrphanRecorded // a stranger's exit status is written down; it is not reaped

	// The server.
	StartAnswered   // the keeper has answered a start; the client has not heard
	InputWritten    // input is in memory; the board does not say that it is accepted
	InputAccepted   // the board says so; nothing is delivered
	FinalCopied     // a finished process is copied from the board; its slot is not given back
	FinishedTrimmed // a finished stream's trim is recorded; nothing is punched
	Removed         // a finished process is forgotten; its files are there
	BoardDiscovered // the processes of the server before are known; the finished ones are not

	// A container, in the keeper.
	ContainerIntended   // its file says that it is being made; nothing else is there
	ContainerGrouped    // it has groups and limits; nobody is in them
	ContainerMapped     // its user namespace has a child that holds it; nobody has it open
	ContainerForked     // pid 1 runs; the file says that it is being made
	ContainerMade       // the file says that it is made; nobody was told
	ContainerUnanswered // everything is done but the answer
	ContainerFurnished  // it has the groups of limits that its first program needs; no network
	ContainerEnding     // the file says that it ends; everybody lives
	ContainerKilled     // everybody is killed; nobody is reaped
	ContainerUngrouped  // its groups are gone; its file is there
	ContainerForgotten  // its file is gone; nobody was told
	ContainerStaged     // what all containers share has a child that holds it; nobody has it open

	// A sandbox, in the server.
	SandboxFolders    // its folders are there; no container
	SandboxBegun      // its container lives; there is no record
	SandboxRecorded   // the record is there; nobody was told
	SandboxDestroying // the record says that it goes; its container lives
	SandboxEnded      // its container is gone; its processes are known, and its folders are there
	SandboxEmptied    // its processes are forgotten; its folders are there
	SandboxDiscarded  // its folders are in the trash; nobody was told

	count
)

var names = [...]string{
	SpawnReserved: "spawn-reserved", SpawnSpec: "spawn-spec", SpawnVaulted: "spawn-vaulted", SpawnForking: "spawn-forking",
	SpawnLimited: "spawn-limited", SpawnForked: "spawn-forked",
	SpawnNoted: "spawn-noted", SpawnPidfd: "spawn-pidfd", SpawnSettled: "spawn-settled", SpawnRecorded: "spawn-recorded",
	SpawnAnnounced:  "spawn-announced",
	SpawnUnanswered: "spawn-unanswered",
	Spliced:         "spliced", Indexed: "indexed", Staged: "staged", TrimBase: "trim-base", TrimRecorded: "trim-recorded",
	TrimPunched: "trim-punched", Resized: "resized",
	ExitSeen: "exit-seen", ExitDrained: "exit-drained", ExitRecorded: "exit-recorded", ExitAnnounced: "exit-announced",
	ExitSynced: "exit-synced", TreeRecorded: "tree-recorded",
	Final: "final", Retired: "retired",
	StdinMade: "stdin-made", Fed: "fed", StdinClosed: "stdin-closed",
	KillNoted: "kill-noted", KillSent: "kill-sent",
	UpgradeFrozen: "upgrade-frozen", UpgradeSnapshot: "upgrade-snapshot", UpgradeDecoded: "upgrade-decoded",
	UpgradeRestored: "upgrade-restored",
	TakeoverFetched: "takeover-fetched", TakeoverGlobals: "takeover-globals", TakeoverRestored: "takeover-restored",
	TakeoverDone:   "takeover-done",
	HalfStartFound: "half-start-found", HalfStartCompleted: "half-start-completed", UndoKilled: "undo-killed", VaultRefilled: "vault-refilled",
	AnchorHeld: "anchor-held", AnchorResumed: "anchor-resumed", KeeperForked: "keeper-forked", VaultMarked: "vault-marked",
	VaultPut:  "vault-put",
	VaultSent: "vault-sent", OrphanRecorded: "orphan-recorded",
	StartAnswered: "start-answered", InputWritten: "input-written", InputAccepted: "input-accepted", FinalCopied: "final-copied",
	FinishedTrimmed: "finished-trimmed", Removed: "removed", BoardDiscovered: "board-discovered",
	ContainerIntended: "container-intended", ContainerGrouped: "container-grouped", ContainerMapped: "container-mapped",
	ContainerForked: "container-forked", ContainerMade: "container-made", ContainerUnanswered: "container-unanswered",
	ContainerFurnished: "container-furnished", ContainerEnding: "container-ending", ContainerKilled: "container-killed",
	ContainerUngrouped: "container-ungrouped", ContainerForgotten: "container-forgotten",
	ContainerStaged: "container-staged",
	SandboxFolders:  "sandbox-folders", SandboxBegun: "sandbox-begun", SandboxRecorded: "sandbox-recorded",
	SandboxDestroying: "sandbox-destroying", SandboxEnded: "sandbox-ended", SandboxEmptied: "sandbox-emptied",
	SandboxDiscarded: "sandbox-discarded",
}
