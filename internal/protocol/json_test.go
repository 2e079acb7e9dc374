package protocol

import (
	"strings"
	"testing"
)

func TestAValueOfTheWrongFormIsNamed(t *testing.T) {
	type inner struct {
		Names []string `json:"names"`
	}
	type request struct {
		Count *int32            `json:"count"`
		Size  uint8             `json:"size"`
		Share float64           `json:"share"`
		On    bool              `json:"on"`
		In    *inner            `json:"in"`
		Tags  map[string]string `json:"tags"`
	}
	for text, want := range map[string]string{
		`[]`:                       "it is an array; an object is needed",
		`{"count":"3"}`:            "count is a string; a whole number of 32 bits is needed",
		`{"count":3.5}`:            "count is the number 3.5; a whole number of 32 bits is needed",
		`{"count":3000000000}`:     "count is the number 3000000000; a whole number of 32 bits is needed",
		`{"size":-1}`:              "size is the number -1; a whole number of 8 bits that is not negative is needed",
		`{"share":{}}`:             "share is an object; a number is needed",
		`{"on":1}`:                 "on is a number; true or false is needed",
		`{"in":true}`:              "in is true or false; an object is needed",
		`{"in":{"names":"a"}}`:     "in.names is a string; an array is needed",
		`{"in":{"names":["a",1]}}`: "in.names is a number; a string is needed",
		`{"tags":{"a":[]}}`:        "tags is an array; a string is needed",
		`{"on":tru}`:               "invalid character",
	} {
		err := DecodeJSON([]byte(text), new(request))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	if err := DecodeJSON([]byte("["+strings.Repeat("1,", MaxFields+1)+"1]"), new([]int)); err == nil || !strings.Contains(err.Error(), "fields") {
		t.Errorf("too many fields: %v", err)
	}
	r := new(request)
	if err := DecodeJSON([]byte(`{"count":3,"in":{"names":["a"]}}`), r); err != nil || *r.Count != 3 || r.In.Names[0] != "a" {
		t.Errorf("%+v, %v", r, err)
	}
}
