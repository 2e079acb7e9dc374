package files

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
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

// Lookup finds the account with the name; the empty name is the account the
// daemon runs as. An unknown name is [ErrUnknownUser]. A daemon that is not
// root cannot act for others and gets [ErrPermission] for them.
func Lookup(name string) (User, error) {
	u, err := find(name)
	if err != nil {
		return User{}, err
	}
	if euid := os.Geteuid(); euid != 0 && euid != u.UID {
		return User{}, fmt.Errorf("acting for user '%s' needs a daemon that runs as root: %w", name, ErrPermission)
	}
	return u, nil
}

func find(name string) (User, error) {
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
		return User{}, fmt.Errorf("user '%.64s': %w", name, ErrUnknownUser)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return User{}, fmt.Errorf("user '%s' has the id %q: %w", name, u.Uid, ErrUnknownUser)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return User{}, fmt.Errorf("user '%s' has the group %q: %w", name, u.Gid, ErrUnknownUser)
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
	mu     sync.Mutex
	users  map[uint32]string // guarded by mu
	groups map[uint32]string // guarded by mu
}

func newOwners() *owners {
	return &owners{users: make(map[uint32]string), groups: make(map[uint32]string)}
}

// names returns the names of the ids, or the numbers if they have none.
func (o *owners) names(uid, gid uint32) (owner, group string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner, ok := o.users[uid]
	if !ok {
		owner = strconv.FormatUint(uint64(uid), 10)
		if u, err := user.LookupId(owner); err == nil {
			owner = u.Username
		}
		o.users[uid] = owner
	}
	group, ok = o.groups[gid]
	if !ok {
		group = strconv.FormatUint(uint64(gid), 10)
		if g, err := user.LookupGroupId(group); err == nil {
			group = g.Name
		}
		o.groups[gid] = group
	}
	return owner, group
}
