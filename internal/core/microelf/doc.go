// Package microelf makes programs of some hundred bytes from machine code: for processes that
// live long, and of which there may be thousands.
package microelf
