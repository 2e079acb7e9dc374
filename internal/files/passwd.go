package files

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// What a sandbox can make the daemon read of its account database.
const (
	maxAccounts      = 4 << 20 // bytes of etc/passwd, and of etc/group
	maxAccountLines  = 100_000
	maxAccountGroups = 1024 // groups of one account
	maxKnownInside   = 16   // accounts that are remembered
)

// Account finds an account inside: a name or uid, as [Account] does on this machine; "" is
// root. With ":" and the name or the number of a group behind it, that is its only one. It reads
// etc/passwd and etc/group below the root: regular files of at most 4 MiB and 100,000 lines;
// what is beyond is not there. Root needs no entry, nor does a uid. Errors: [ErrUnknownUser], also for an id of [RootIDs] or more.
func (r *Root) Account(name string) (User, error) {
	if name == "" {
		name = "root"
	}
	if len(name) > maxUserName {
		return User{}, fmt.Errorf("user '%.64s': %w", name, ErrUnknownUser)
	}
	now := [2]stamp{r.stampOf("etc/passwd"), r.stampOf("etc/group")}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || r.stamp != now {
		r.known, r.stamp = map[string]User{}, now
	}
	if u, ok := r.known[name]; ok {
		return u, nil
	}
	u, err := r.find(name)
	if err = r.ended(err); err != nil { // nobody was found because nothing could be read
		return User{}, err
	}
	if len(r.known) >= maxKnownInside {
		clear(r.known)
	}
	r.known[name] = u
	return u, nil
}

func (r *Root) find(name string) (User, error) {
	uidText := ""
	name, group, both := strings.Cut(name, ":")
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		uidText = name
	}
	found := User{Name: name, Home: "/"}
	known := name == "root"
	if uidText != "" {
		uid, err := parseRootID(uidText, "uid")
		if err != nil {
			return User{}, err
		}
		found, known = User{Name: uidText, Home: "/", UID: uid, GID: uid}, true
	}
	for f := range r.lines("etc/passwd", 7) {
		if uidText == "" && f[0] != name || uidText != "" && f[2] != uidText {
			continue
		}
		uid, err1 := parseRootID(f[2], "uid")
		gid, err2 := parseRootID(f[3], "gid")
		if err1 != nil || err2 != nil {
			continue
		}
		found, known = User{Name: f[0], Home: home(f[5]), UID: uid, GID: gid}, true
		break
	}
	if !known {
		return User{}, fmt.Errorf("user '%.64s': %w", name, ErrUnknownUser)
	}
	if both {
		gid, err := r.group(group)
		found.GID = gid
		return found, err
	}
	found.Groups = []int{found.GID}
	for f := range r.lines("etc/group", 4) {
		gid, err := parseRootID(f[2], "gid")
		if err != nil || gid == found.GID || !member(f[3], found.Name) {
			continue
		}
		if found.Groups = append(found.Groups, gid); len(found.Groups) == maxAccountGroups {
			break
		}
	}
	return found, nil
}

// group is the id of a group, which is one or its name.
func (r *Root) group(text string) (int, error) {
	if text == "" || text[0] >= '0' && text[0] <= '9' {
		return parseRootID(text, "gid")
	}
	for f := range r.lines("etc/group", 3) {
		if f[0] == text {
			return parseRootID(f[2], "gid")
		}
	}
	return 0, fmt.Errorf("group '%.64s': %w", text, ErrUnknownUser)
}

func member(list, name string) bool {
	for m := range strings.SplitSeq(list, ",") {
		if m == name {
			return true
		}
	}
	return false
}

// home makes sure that paths can start there.
func home(dir string) string {
	if len(dir) == 0 || dir[0] != '/' || len(dir) > MaxPath {
		return "/"
	}
	return dir
}

func parseRootID(s, kind string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= RootIDs {
		return 0, fmt.Errorf("%w: %.40q is no %s of a sandbox; 0 to %d are", ErrUnknownUser, s, kind, RootIDs-1)
	}
	return int(n), nil
}

// names returns a function that finds the name of an id in a file of accounts. It
// reads the file when it is called first, with the rights that its caller has then.
func (r *Root) names(file string) func(id string) (string, error) {
	var known map[string]string
	return func(id string) (string, error) {
		if known == nil {
			known = map[string]string{}
			for f := range r.lines(file, 3) {
				if _, there := known[f[2]]; !there {
					known[f[2]] = f[0]
				}
			}
		}
		if name := known[id]; name != "" {
			return name, nil
		}
		return "", ErrUnknownUser
	}
}

// lines goes over the lines of a file of accounts that have at least so many fields
// and a name that can be a name.
func (r *Root) lines(file string, fields int) func(yield func(f []string) bool) {
	return func(yield func([]string) bool) {
		rest := r.readAccounts(file)
		for range maxAccountLines {
			line, after, more := strings.Cut(rest, "\n")
			// A line that no program of the sandbox takes either.
			if f := strings.SplitN(line, ":", max(fields, 7)); len(f) >= fields && isUserName(f[0]) && strings.IndexByte(line, 0) < 0 && !yield(f) {
				return
			}
			if rest = after; !more {
				return
			}
		}
	}
}

func isUserName(s string) bool {
	return s != "" && len(s) <= maxUserName && utf8.ValidString(s) && s[0] != '#' && s[0] != '+' && s[0] != '-'
}
