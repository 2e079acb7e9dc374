// Package unpack writes the layers of images: what a tar of a layer says becomes the
// directory of a layer, in the form that package layer describes.
//
// # What a layer means
//
// A layer is unpacked with the layers below it in view. A link in the path of an entry is
// followed, within the root, also if a layer below has it: with "bin -> usr/bin" below,
// "bin/foo" becomes "usr/bin/foo". So the result depends on the layers below, and is shared
// by the digest of the whole chain alone. An entry of a directory replaces a link or a file
// of its name, and keeps a directory. A directory that no entry describes is that of the
// layers below, or has mode 0755 and belongs to root. A hard link to a file of a layer below
// copies the file first.
//
// ".wh.NAME" removes NAME of the layers below, and ".wh..wh..opq" everything in its directory,
// wherever in the archive they stand: never what the layer itself has. Other names that begin
// with ".wh..wh." mean nothing.
//
// # What is kept
//
// Owners (ids inside, 0 to 65535), modes with setuid, setgid and sticky bits, times, links,
// hard links, attributes that begin with "user.". Blocks of zeros become holes. [Left] counts
// what is left out: devices, FIFOs, other attributes, among them file capabilities, which mean
// nothing in a sandbox, and owners beyond the range, which become 65534. Attributes that an
// overlay would take for its own are left out always.
//
// # Hostile layers
//
// Nothing outside of the directory is ever opened, written or followed: each directory is
// opened by the kernel beneath the layer's own, without following a link. A name with ".." in
// it, one that is too long, a hard link to what there is not, and more than the limits allow
// are errors, which name the entry. The caller discards the directory then.
package unpack
