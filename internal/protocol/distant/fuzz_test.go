package distant

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// FuzzRequests decodes requests in both encodings and does nothing with them:
// no input may panic, and what is taken has to be valid.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		`{"type":"proc_spawn","cmd":"ls 'a b'","environment":{"A":"b"},"current_dir":"x","pty":{"rows":1,"cols":2,"pixel_width":3}}`,
		`{"type":"search","query":{"target":"contents","condition":{"type":"or","value":[{"type":"regex","value":"a+"},{"type":"equals","value":"b"}]},"paths":["/x"],"options":{"limit":1,"include":{"type":"contains","value":"c"}}}}`,
		`{"id":"1","header":{"sequence":true},"payload":[{"type":"version"},{"type":"proc_stdin","id":1,"data":[1,2]}]}`,
		"\x82\xa4type\xaaproc_spawn\xa3cmd\xa2ls",
		"\x82\xa2id\xa15\xa7payload\x81\xa4type\xa4nope",
	} {
		f.Add([]byte(s))
	}
	c := &client{face: &Face{dir: "/work", environ: map[string]string{"PATH": "/bin"}}, lanes: map[uint32]*lane{}}
	f.Fuzz(func(t *testing.T, b []byte) {
		packets := make([]*packet, 0, 2)
		if v, err := wire.ParseJSON(b); err == nil && v.IsObject() {
			if p, err := linePacket(v); err == nil {
				packets = append(packets, p)
			}
		}
		if p, err := packOf(b); err == nil {
			packets = append(packets, p)
		}
		for _, p := range packets {
			c.admit(p)
			for i, call := range p.calls {
				if tk := p.tickets[i]; tk != nil {
					tk.leave()
				}
				fields := fieldsOf(call.value, "")
				fields.get("type")
				if spec, err := c.spawnSpec(fields); err == nil && len(spec.Argv) == 0 {
					t.Errorf("%q became a command without words", b)
				}
				fields = fieldsOf(call.value, "")
				fields.get("type")
				if q, err := (&fileRequest{c: c, fs: files.FS{}, f: fields}).query(); err == nil && q.condition == nil {
					t.Errorf("%q became a search for nothing", b)
				}
			}
		}
	})
}

// FuzzLines reads lines however they are cut.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\n\nbb\r\nlast"), uint8(16))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		in := bufio.NewReaderSize(bytes.NewReader(b), int(size))
		var got []byte
		for {
			line, err := readLine(in)
			got = append(got, line...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, b) {
			t.Errorf("%q became %q", b, got)
		}
	})
}
