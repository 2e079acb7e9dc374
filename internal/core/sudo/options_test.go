package sudo

import (
	"reflect"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]options{
		"id -u":                            {argv: []string{"id", "-u"}},
		"-E -H -n -S id":                   {preserve: true, home: true, argv: []string{"id"}},
		"-EHn -u user id":                  {preserve: true, home: true, user: "user", argv: []string{"id"}},
		"-uuser -- -x":                     {user: "user", argv: []string{"-x"}},
		"--user=user A=1 B=2 env C=3":      {user: "user", set: []string{"A=1", "B=2"}, argv: []string{"env", "C=3"}},
		"--preserve-env=A,B --set-home id": {keep: []string{"A", "B"}, home: true, argv: []string{"id"}},
		"--preserve-env id":                {preserve: true, argv: []string{"id"}},
		"-i":                               {login: true, argv: []string{}},
		"-s echo a":                        {shell: true, argv: []string{"echo", "a"}},
		"-v":                               {list: true, argv: []string{}},
		"./a=b":                            {argv: []string{"./a=b"}},
	} {
		if got, err := parse(strings.Fields(line)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "-u", "--user", "-z id", "--what id", "-i -s", "A=1", "-E"} {
		if got, err := parse(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), "usage: sudo") {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
}
