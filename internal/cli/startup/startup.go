// Package startup has the units with which systemd keeps a daemon of tend: that of the system, with
// its sockets, and that of one user. The packages install the same files.
package startup

import (
	"embed"
	"strings"
)

//go:embed units
var units embed.FS

// packaged is the program in the units as they are packaged.
const packaged = "/usr/bin/tend"

// Unit is a file for systemd.
type Unit struct {
	Name string
	Text string
}

// System are the units of the system's daemon, of the program exe: an absolute path.
func System(exe string) []Unit {
	return []Unit{unit("tend.service", "tend.service", exe), unit("tend.socket", "tend.socket", exe)}
}

// User are the units of one user's daemon.
func User(exe string) []Unit { return []Unit{unit("user.service", "tend.service", exe)} }

func unit(file, name, exe string) Unit {
	text, err := units.ReadFile("units/" + file)
	if err != nil { // it is built in
		panic(err)
	}
	return Unit{name, strings.ReplaceAll(string(text), packaged+" ", quoted(exe)+" ")}
}

// quoted is a word of a unit's line.
func quoted(s string) string {
	s = strings.NewReplacer(`%`, `%%`, `\`, `\\`, `"`, `\"`, `$`, `$$`).Replace(s)
	if strings.ContainsAny(s, " \t'\"") {
		return `"` + s + `"`
	}
	return s
}

// Group are what the units of the system's daemon need so that members of a group may use its socket:
// files below the directory of units, by their name.
func Group(exe, group string) []Unit {
	return []Unit{
		{"tend.socket.d/group.conf", "# tend startup --group\n[Socket]\nSocketMode=0660\nSocketGroup=" + group + "\nDirectoryMode=0755\n"},
		{"tend.service.d/group.conf", "# tend startup --group\n[Service]\nExecStart=\nExecStart=" + quoted(exe) +
			" serve --keep --group " + group + " $TEND_FLAGS\n"},
	}
}
