// Package guard decides what the healer may read and change of a project, and
// removes secrets from what is said to a model. The rules are enforced here, in
// code: nothing depends on what a model was told.
//
// # Paths
//
// A [Guard] works below one directory, the root. A path is relative to it, or
// absolute and below it. The guard walks to it one component at a time, by
// descriptors ([os.Root]), and follows links itself. So it knows the real path of
// what it opens, and no link, "..", or swap of a directory between check and use leads
// out of the root or around a rule: rules apply to the real path. They ignore letter
// case, since some file systems do.
//
// These rules always hold, at any depth:
//
//   - .git, .tend, .ssh, .aws, .gnupg with all below them, and files of keys and
//     logins (*.pem, *.key, *.p12, *.pfx, *.jks, id_rsa and its kin, .netrc, .npmrc,
//     .pypirc, .pgpass) are neither read nor changed, and neither are copies that editors leave.
//   - Of .env and .env.* a reader sees the names, not the values.
//     [Guard.SetEnv] alone changes them, and never replaces a value. Files that are
//     made to be copied (.env.example, .sample, .template, .dist, .defaults) are read as
//     they are.
//   - .gitattributes and .gitmodules are read, not changed: they decide what git does
//     to the content of other files.
//
// Config.Protected adds globs of what is read, not changed. A file that has
// several hard links is denied if one of them is denied. Only regular
// files are opened, and without waiting: a FIFO or a device holds nobody up.
//
// The guard is for the tools that read and write files. A command that the healer
// runs is not held by it: confine the command, and roll back what it did
// (package internal/heal/checkpoint).
//
// # Secrets
//
// A [Redactor] knows secrets by value and finds them in a text in a normal form, to which it
// brings the text: as they are, reversed, in base64 (standard and URL alphabet), base32
// and bits at each alignment, percent-encoded, in quoted-printable, with the escapes of JSON, C,
// JavaScript, Python and shells, as HTML entities, and as numbers of any base: plain hex, the
// dumps of hexdump, xxd and od in all their forms, with the offsets and the text beside, and
// lists of numbers in code; also one in another. The case of ASCII letters is ignored where the encoding is not base64.
// White space, quotes, backslashes and colour sequences between the characters hide nothing.
// A text that was made to be read in very many ways is hidden. Besides, the redactor finds
// what looks like a key of a known provider, a JSON web token, a private key, or
// the password of a URL. It cannot find what was encrypted, compressed or put into words.
package guard
