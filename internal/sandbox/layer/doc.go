// Package layer stores the directories that sandboxes are stacked from: each layer
// contains the changes that one sandbox, or one step of a template, made to the layer
// below it.
//
// # On disk
//
//	<dir>/<id>/layer.json  what is known of the layer
//	<dir>/<id>/fs          its files, which nobody changes
//	<dir>/.new/<id>        a copy that is being made
//	<dir>/.trash/<id>      a layer that is being removed
//
// A layer exists when both its parts exist. A copy is made in .new and gets its name
// when it is complete. Seal first writes layer.json and then moves the directory. If
// the daemon ends between the two steps, it leaves a layer without files, which Open
// removes; if it ends afterwards, it leaves a complete layer, which [Store.Sealed]
// finds. So the directory is always in exactly one of the two places.
//
// Nothing is synced to the disk at once; [Store.Sweep] does it later. A layer that was
// made shortly before a power loss may lack content: see [Info.Suspect].
//
// # Files of a layer
//
// They have the form of an overlay's upper directory that is mounted with userxattr: a
// removed file is a character device 0/0, and a directory that hides the one below has
// the attribute user.overlay.opaque. Owners are ids inside the sandbox. A directory
// with a whole root has none of this.
//
// # References
//
// A layer stays while it has a hold, while a layer above it stays, or, if it has a key,
// for some time after its last use. Holds are not stored on disk: their owner must take
// them again from its own records after Open, before the first Sweep.
package layer
