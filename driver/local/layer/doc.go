// Package layer keeps the directories that sandboxes are stacked from: each layer is
// what one sandbox, or one step of a template, changed of the layer below it.
//
// # On disk
//
//	<dir>/<id>/layer.json  what is known of the layer
//	<dir>/<id>/fs          its files, which nobody changes
//	<dir>/.new/<id>        a copy that is being made
//	<dir>/.trash/<id>      a layer that is being removed
//
// A layer is there when both its parts are. A copy is made in .new and gets its name
// when it is whole. Seal writes layer.json first and then moves the directory: a
// daemon that ends between the two leaves a layer without files, which Open removes,
// and one that ends after it leaves a whole layer, which [Store.Sealed] finds. So the
// directory is at every moment in one of the two places.
//
// Nothing is forced to the disk at once; [Store.Sweep] does it. A layer that was made
// shortly before the machine lost its power may lack content: see [Info.Suspect].
//
// # Files of a layer
//
// They are as an overlay's upper directory has them when it is mounted with userxattr:
// a file that is removed is a character device 0/0, and a directory that hides the one
// below has the attribute user.overlay.opaque. Owners are ids of inside. A directory
// with a whole root has none of this.
//
// # References
//
// A layer stays while somebody holds it, while it is below one that stays, or, if it
// has a key, for some time after it was used. Holds are not kept on disk: whoever has
// them in its own records takes them again after Open, before the first Sweep.
package layer
