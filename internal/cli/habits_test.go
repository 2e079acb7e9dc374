package cli

import (
	"regexp"
	"strings"
	"testing"
)

// habits are what people of other programs type, with tend in the place of the program's name.
var habits = map[string]string{
	"docker": `run -d --name web sh; run --rm -it sh; ps -a; ls; logs -f web; logs --tail 5 --since 1h -t web; stop -t 5 web; kill -s HUP web;
		restart web; rm -f web; inspect web; top; stats; exec -it web sh; cp web:/etc/hosts .; images; pull alpine; rmi alpine; port web 80; system prune;
		container ls; volume ls; network ls; build .; save x; load; info; version; wait web; rename a b; attach web; events -f; events --since 1h; stop --timeout 5 web;
		restart --timeout 5 web; url web 80`,
	"pm2": `start app.js; list; ls; status; stop web; restart web; reload web; delete web; logs web; flush; monit; describe web; show web; jlist;
		prettylist; save; resurrect; startup; unstartup; scale web 3; ecosystem; reset web; sendSignal HUP web; stop --all; kill --all`,
	"compose": `up; up -d; up --build; up --scale web=2; up --remove-orphans; up -d --wait; up -f x.yaml -p shop; down; down -v; down --rmi all; down -t 5; up -t 5; ps; ls;
		projects; logs -f web; start web; stop web; restart web; kill web; exec web sh; config check; config --services; build; pull; port web 80; compose up; top`,
	"kubectl": `get pods; get services; describe pod web; logs -f web --tail 5 --previous; logs web --since 5m; exec -it web sh; apply -f tend.yaml;
		delete pod web; port-forward web 8080:80; rollout restart web; rollout status web; scale web 3; top; events -f; cp web:/x y; attach web; run web sh;
		edit web; cluster-info; version; config check; wait web`,
	"tmux": `new-session -s x; new; new-window; ls; list-sessions; attach -t x; attach x; a; attach-session -t x; detach; kill-session -t x; kill-server;
		send-keys -t x ls Enter; capture-pane -p -t x; split-window; has-session -t x; rename-session a b; switch-client; run -t sh; ps`,
}

// Each works, or one line says what does.
func TestHabitsOfOtherProgramsAreAnswered(t *testing.T) {
	does := regexp.MustCompile(`tend [a-z]|ctrl-|nothing (has to be saved|compares)|each service runs once|the name stands alone`)
	for of, lines := range habits {
		all := strings.Split(lines, ";")
		if len(all) < 20 {
			t.Errorf("of %s there are %d", of, len(all))
		}
		for _, line := range all {
			r := &reading{node: program(new(grammar))}
			err := r.read(strings.Fields(line))
			if err == nil {
				err = r.finish(func(string) string { return "" })
			}
			if err == nil {
				continue
			}
			text, _, _ := strings.Cut(r.node.wrongUse(err), " (see ")
			if !does.MatchString(text) || strings.Contains(text, "\n") {
				t.Errorf("%s: %s: %s", of, strings.TrimSpace(line), text)
			}
		}
	}
}
