package envdfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/tend-run/tend/internal/gen/envd/filesystem"
	"github.com/tend-run/tend/internal/gen/envd/filesystem/filesystemconnect"
	"github.com/tend-run/tend/internal/support/proctest"
)

func (s *server) clients() map[string]filesystemconnect.FilesystemClient {
	return map[string]filesystemconnect.FilesystemClient{
		"json":    filesystemconnect.NewFilesystemClient(s.http, s.url, connect.WithProtoJSON()),
		"proto":   filesystemconnect.NewFilesystemClient(s.http, s.url),
		"grpcweb": filesystemconnect.NewFilesystemClient(s.http, s.url, connect.WithGRPCWeb()),
	}
}

// The bytes of each answer over the JSON codec, which all SDKs use.
func TestServiceTranscripts(t *testing.T) {
	s := serve(t, Config{})
	proctest.Must(t, os.MkdirAll(filepath.Join(s.dir, "d/e"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(s.dir, "f"), []byte("hello"), 0o640))
	for _, link := range []string{"loop", "d/in"} {
		proctest.Must(t, os.Symlink("loop", filepath.Join(s.dir, link)))
	}
	when := time.Unix(1700000000, 0)
	proctest.Must(t, os.Chtimes(filepath.Join(s.dir, "f"), when, when))
	file := `{"name":"f","type":"FILE_TYPE_FILE","path":"DIR/f","size":"5","mode":416,"permissions":"-rw-r-----","owner":"ME","group":"ME","modifiedTime":"2023-11-14T22:13:20Z"}`
	tests := []struct {
		name, method, body string
		headers            []string
		code               int
		want               string
	}{
		{"stat", "Stat", `{"path":"DIR/f"}`, nil, 200, `{"entry":` + file + `}`},
		{"stat for a user", "Stat", `{"path":"DIR/f"}`, []string{basic("ME")}, 200, `{"entry":` + file + `}`},
		{"unknown fields are ignored", "Stat", `{"path":"DIR/f","new":1}`, nil, 200, `{"entry":` + file + `}`},
		{"stat of nothing", "Stat", `{"path":"DIR/x"}`, nil, 404, `{"code":"not_found","message":"file not found: stat DIR/x: no such file or directory"}`},
		{"an unknown user", "Stat", `{"path":"DIR/f"}`, []string{basic("nix")}, 401, `{"code":"unauthenticated","message":"invalid username: 'nix'"}`},
		{"a user without a colon", "Stat", `{"path":"DIR/f"}`, []string{"Authorization: Basic bm9ib2R5"}, 401, `{"code":"unauthenticated","message":"the Authorization header names no user: Basic is followed by the base64 text of name and colon"}`},
		{"another user's home", "Stat", `{"path":"~root"}`, nil, 400, `{"code":"invalid_argument","message":"path '~root' names another user's home; write it out"}`},
		{"a NUL byte", "Stat", `{"path":"/a\u0000"}`, nil, 400, `{"code":"invalid_argument","message":"path \"/a\\x00\" has a NUL byte"}`},
		{"a long path", "Stat", `{"path":"/` + strings.Repeat("a", 500_000) + `"}`, nil, 400, `{"code":"invalid_argument","message":"path has 500001 bytes; the limit is 4095"}`},
		{"an existing directory", "MakeDir", `{"path":"DIR/d"}`, nil, 409, `{"code":"already_exists","message":"directory already exists: DIR/d"}`},
		{"a file in the way", "MakeDir", `{"path":"DIR/f"}`, nil, 400, `{"code":"invalid_argument","message":"path already exists but it is not a directory: DIR/f"}`},
		{"a directory far below a file", "MakeDir", `{"path":"DIR/f/x/y"}`, nil, 500, `{"code":"internal","message":"path is a file: DIR/f"}`},
		{"a list of a file", "ListDir", `{"path":"DIR/f"}`, nil, 400, `{"code":"invalid_argument","message":"path is not a directory: DIR/f"}`},
		{"a list of a cycle", "ListDir", `{"path":"DIR/loop"}`, nil, 400, `{"code":"failed_precondition","message":"cyclic symlink or chain \u003e255 links at \"DIR/loop\""}`},
		{"a list of nothing", "ListDir", `{"path":"DIR/x","depth":4294967295}`, nil, 404, `{"code":"not_found","message":"path not found: list DIR/x: no such file or directory"}`},
		{"an empty list", "ListDir", `{"path":"DIR/d/e"}`, nil, 200, `{}`},
		{"a move of nothing", "Move", `{"source":"DIR/x","destination":"DIR/y"}`, nil, 404, `{"code":"not_found","message":"source file not found: move DIR/x: no such file or directory"}`},
		{"a move of a mount", "Move", `{"source":"/","destination":"DIR/y"}`, nil, 500, `{"code":"internal","message":"error renaming: move /: device or resource busy"}`},
		{"a move below a file", "Move", `{"source":"DIR/d","destination":"DIR/f/x/y"}`, nil, 500, `{"code":"internal","message":"path is a file: DIR/f"}`},
		{"a move over a directory that is not empty", "Move", `{"source":"DIR/d/e","destination":"DIR/d"}`, nil, 500, `{"code":"internal","message":"error renaming: move DIR/d/e: file exists"}`},
		{"a move", "Move", `{"source":"DIR/f","destination":"DIR/d/f"}`, nil, 200, `{"entry":` + strings.Replace(file, "DIR/f", "DIR/d/f", 1) + `}`},
		{"remove", "Remove", `{"path":"DIR/d"}`, nil, 200, `{}`},
		{"remove of nothing", "Remove", `{"path":"DIR/d"}`, nil, 200, `{}`},
		{"remove of the root", "Remove", `{"path":"/"}`, nil, 400, `{"code":"invalid_argument","message":"path is the root directory, which is not removed"}`},
		{"a watch of nothing", "CreateWatcher", `{"path":"DIR/x"}`, nil, 404, `{"code":"not_found","message":"path DIR/x not found: watch DIR/x: no such file or directory"}`},
		{"an unknown watcher", "GetWatcherEvents", `{"watcherId":"w1"}`, nil, 404, `{"code":"not_found","message":"watcher with id w1 not found"}`},
		{"removal of an unknown watcher", "RemoveWatcher", `{"watcherId":"w1"}`, nil, 404, `{"code":"not_found","message":"watcher with id w1 not found"}`},
	}
	put := strings.NewReplacer("DIR", s.dir, "ME", s.user).Replace
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.headers {
				if tt.headers[i] == basic("ME") {
					tt.headers[i] = basic(s.user)
				}
			}
			res, got := s.do("POST", "/filesystem.Filesystem/"+tt.method, put(tt.body), append(tt.headers, "Content-Type: application/json")...)
			// protojson puts spaces in at random, by design.
			got = strings.ReplaceAll(strings.ReplaceAll(got, `": `, `":`), `, "`, `,"`)
			got = strings.ReplaceAll(got, ">", `\u003e`)
			if res.StatusCode != tt.code || got != put(tt.want) {
				t.Errorf("got %d %s\nwant %d %s", res.StatusCode, got, tt.code, put(tt.want))
			}
		})
	}
}

func TestTooLargeAMessageIsRefused(t *testing.T) {
	s := serve(t, Config{})
	for name, c := range s.clients() {
		_, err := c.Stat(t.Context(), connect.NewRequest(&pb.StatRequest{Path: strings.Repeat("a", 10<<20)}))
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWatchDirOverEachProtocol(t *testing.T) {
	s := serve(t, Config{})
	for name, c := range s.clients() {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(s.dir, name)
			proctest.Must(t, os.Mkdir(dir, 0o755))
			req := connect.NewRequest(&pb.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true})
			// The smallest interval is a second, whatever is asked for.
			req.Header().Set("Keepalive-Ping-Interval", "-1")
			stream := proctest.Value(c.WatchDir(t.Context(), req))(t)
			defer stream.Close()
			if !stream.Receive() || stream.Msg().GetStart() == nil {
				t.Fatalf("first %v, %v", stream.Msg(), stream.Err())
			}
			if !stream.Receive() || stream.Msg().GetKeepalive() == nil {
				t.Fatalf("then %v, %v", stream.Msg(), stream.Err())
			}
			proctest.Must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
			for stream.Receive() {
				if ev := stream.Msg().GetFilesystem(); ev.GetName() == "a/b" {
					if ev.GetType() != pb.EventType_EVENT_TYPE_CREATE || ev.GetEntry().GetType() != pb.FileType_FILE_TYPE_DIRECTORY {
						t.Errorf("event %v", ev)
					}
					return
				}
			}
			t.Errorf("ended with %v", stream.Err())
		})
	}
}

func TestStreamsEndWithTheFaceAndAreBounded(t *testing.T) {
	s := serve(t, Config{MaxWatchers: 1})
	c := s.clients()["json"]
	open := func() *connect.ServerStreamForClient[pb.WatchDirResponse] {
		t.Helper()
		stream := proctest.Value(c.WatchDir(t.Context(), connect.NewRequest(&pb.WatchDirRequest{Path: s.dir})))(t)
		return stream
	}
	first := open()
	defer first.Close()
	if !first.Receive() {
		t.Fatal(first.Err())
	}
	second := open()
	defer second.Close()
	if second.Receive() || connect.CodeOf(second.Err()) != connect.CodeResourceExhausted {
		t.Errorf("one too many: %v", second.Err())
	}
	proctest.Must(t, s.face.Close())
	if first.Receive() || connect.CodeOf(first.Err()) != connect.CodeUnavailable {
		t.Errorf("after Close: %v", first.Err())
	}
	if _, err := c.CreateWatcher(t.Context(), connect.NewRequest(&pb.CreateWatcherRequest{Path: s.dir})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("create after Close: %v", err)
	}
}

func TestPolledWatchers(t *testing.T) {
	s := serve(t, Config{MaxWatchers: 2, MaxEvents: 2})
	c := s.clients()["json"]
	create := func() (string, error) {
		res, err := c.CreateWatcher(t.Context(), connect.NewRequest(&pb.CreateWatcherRequest{Path: s.dir}))
		if err != nil {
			return "", err
		}
		return res.Msg.GetWatcherId(), nil
	}
	id := proctest.Value(create())(t)
	proctest.Value(create())(t)
	if _, err := create(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	events := func() (names []string, err error) {
		res, err := c.GetWatcherEvents(t.Context(), connect.NewRequest(&pb.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			return nil, err
		}
		for _, e := range res.Msg.GetEvents() {
			names = append(names, e.GetName())
		}
		return names, nil
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		proctest.Must(t, os.Mkdir(filepath.Join(s.dir, name), 0o755))
	}
	w, _ := s.face.watchers.get(id)
	<-w.Ready()
	var got []string
	var err error
	proctest.Eventually(t, "the overflow is told", func() bool {
		var names []string
		names, err = events()
		got = append(got, names...)
		return err != nil || len(got) == 4 // all, if we were fast enough
	})
	if len(got) < 4 && (connect.CodeOf(err) != connect.CodeResourceExhausted || len(got) < 2) {
		t.Errorf("got %v, %v", got, err)
	}
	if err != nil {
		if _, err := events(); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("after the error: %v", err)
		}
	}
}

func TestAnIdleWatcherEnds(t *testing.T) {
	s := serve(t, Config{WatcherIdle: 20 * time.Millisecond})
	c := s.clients()["json"]
	res := proctest.Value(c.CreateWatcher(t.Context(), connect.NewRequest(&pb.CreateWatcherRequest{Path: s.dir})))(t)
	// Asking would keep it alive.
	proctest.Eventually(t, "the watcher is gone", func() bool {
		s.face.watchers.mu.Lock()
		defer s.face.watchers.mu.Unlock()
		return len(s.face.watchers.byID) == 0
	})
	if _, err := c.GetWatcherEvents(t.Context(), connect.NewRequest(&pb.GetWatcherEventsRequest{WatcherId: res.Msg.GetWatcherId()})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v", err)
	}
}
