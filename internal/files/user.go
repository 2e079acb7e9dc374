package files

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
)

// User is the account that operations are done for.
type User struct {
	Name string
	Home string
	UID  int
	GID  int
	// Groups are the supplementary groups, the primary one included.
	Groups []int
}

// maxUserName bounds a name before the account database is searched for it.
const maxUserName = 256

// maxID is the largest uid and gid. One more is (uid_t)-1, which the kernel takes
// for "unchanged": a process meant for that uid would run as root.
const maxID = 1<<32 - 2

// Lookup finds the account with the name; the empty name is the account the
// daemon runs as. An unknown name is [ErrUnknownUser]. A daemon that is not
// root cannot act for others and gets [ErrPermission] for them.
func Lookup(name string) (User, error) {
	u, err := named(name)
	if err != nil {
		return User{}, fmt.Errorf("user '%.64s': %w", name, err)
	}
	return u, u.Check()
}

// Account finds the account that process.Spec.User means: a name, "uid" or
// "uid:gid"; "" is the account the daemon runs as. A uid needs no entry in the
// account database; with a gid the account is in no other group. Account does not
// ask whether this daemon can act for it: see [User.Check]. Errors:
// [ErrUnknownUser], and numbers that are no id.
func Account(name string) (User, error) {
	if name == "" {
		name = strconv.Itoa(os.Geteuid())
	}
	if name[0] < '0' || name[0] > '9' {
		return named(name)
	}
	uidText, gidText, both := strings.Cut(name, ":")
	uid, err := parseID(uidText, "uid")
	if err != nil {
		return User{}, err
	}
	found := User{Name: uidText, Home: "/", UID: uid, GID: uid}
	if u, err := user.LookupId(uidText); err == nil {
		if found, err = fromEntry(u); err != nil {
			return User{}, err
		}
	}
	if both {
		gid, err := parseID(gidText, "gid")
		if err != nil {
			return User{}, err
		}
		found.GID, found.Groups = gid, nil
	}
	return found, nil
}

// Check returns [ErrPermission] where this daemon cannot act for the user.
func (u User) Check() error {
	if euid := os.Geteuid(); euid != 0 && euid != u.UID {
		return fmt.Errorf("acting for user '%s' needs a daemon that runs as root: %w", u.Name, ErrPermission)
	}
	return nil
}

func parseID(s, kind string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > maxID {
		return 0, fmt.Errorf("%w: %.40q is no %s; 0 to %d are", ErrUnknownUser, s, kind, maxID)
	}
	return int(n), nil
}

func named(name string) (User, error) {
	var u *user.User
	var err error
	switch {
	case name == "":
		u, err = user.Current()
	case len(name) > maxUserName:
		err = ErrUnknownUser
	default:
		u, err = user.Lookup(name)
	}
	if err != nil {
		return User{}, ErrUnknownUser
	}
	return fromEntry(u)
}

func fromEntry(u *user.User) (User, error) {
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err1 != nil || err2 != nil {
		return User{}, fmt.Errorf("%w: '%s' has the ids %q and %q", ErrUnknownUser, u.Username, u.Uid, u.Gid)
	}
	found := User{Name: u.Username, Home: u.HomeDir, UID: uid, GID: gid}
	// An unreadable group file only costs the supplementary groups.
	ids, err := u.GroupIds()
	if err != nil {
		ids = []string{u.Gid}
	}
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil {
			found.Groups = append(found.Groups, n)
		}
	}
	return found, nil
}

// owners turns numeric ids into names, each asked for once.
type owners struct {
	lookUser, lookGroup func(id string) (name string, err error)

	mu     sync.Mutex
	users  map[uint32]string // guarded by mu
	groups map[uint32]string // guarded by mu
}

func (f FS) owners() *owners {
	o := &owners{users: make(map[uint32]string), groups: make(map[uint32]string)}
	if f.Root != nil {
		o.lookUser, o.lookGroup = f.Root.names("etc/passwd"), f.Root.names("etc/group")
		return o
	}
	o.lookUser = func(id string) (string, error) {
		u, err := user.LookupId(id)
		if err != nil {
			return "", err
		}
		return u.Username, nil
	}
	o.lookGroup = func(id string) (string, error) {
		g, err := user.LookupGroupId(id)
		if err != nil {
			return "", err
		}
		return g.Name, nil
	}
	return o
}

func (a *Actor) owners() *owners { return FS{Root: a.root}.owners() }

// names returns the names of the ids, or the numbers if they have none.
func (o *owners) names(uid, gid uint32) (owner, group string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cached(o.users, uid, o.lookUser), cached(o.groups, gid, o.lookGroup)
}

func cached(known map[uint32]string, id uint32, look func(string) (string, error)) string {
	name, ok := known[id]
	if !ok {
		name = strconv.FormatUint(uint64(id), 10)
		if found, err := look(name); err == nil {
			name = found
		}
		known[id] = name
	}
	return name
}
