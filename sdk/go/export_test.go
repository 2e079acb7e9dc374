package tend

// LimitList makes List accept n processes: a million take a minute of a test.
func (c *Client) LimitList(n int) { c.listed = n }

// AfterRequest is for the test of connections.
var AfterRequest = afterRequest
