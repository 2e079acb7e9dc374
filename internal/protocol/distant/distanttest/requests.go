package distanttest

import "github.com/tend-run/tend/internal/protocol/distant/wire"

// Spawn sends proc_spawn of a command line.
func (c *Client) Spawn(cmd string) string {
	return c.Send("proc_spawn", 1, func(w wire.Writer) {
		w.Key("cmd").Str(cmd)
	})
}

// Stdin sends input.
func (c *Client) Stdin(id uint32, data []byte) string {
	return c.Send("proc_stdin", 2, func(w wire.Writer) {
		w.Key("id").Uint(uint64(id))
		w.Key("data").Bytes(data)
	})
}

// About sends a request that names a process, and perhaps one number more.
func (c *Client) About(typ string, id uint32, extra ...any) string {
	return c.Send(typ, 1+len(extra)/2, func(w wire.Writer) {
		w.Key("id").Uint(uint64(id))
		for i := 0; i+1 < len(extra); i += 2 {
			w.Key(extra[i].(string)).Uint(uint64(extra[i+1].(int)))
		}
	})
}

// Path sends a request about a path.
func (c *Client) Path(typ, path string) string {
	return c.Send(typ, 1, func(w wire.Writer) {
		w.Key("path").Str(path)
	})
}
