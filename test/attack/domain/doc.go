// Package domain attacks a daemon that answers by TLS to names below its domain: by one name nobody reaches another
// sandbox's port, the server's own page, or what is another tenant's.
package domain
