package client

import (
	"net/http"
	"testing"
)

func TestAReleasesFileIsNeverFetchedByHTTPAfterHTTPS(t *testing.T) {
	from := func(url string) *http.Request {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	if onward(from("http://b"), []*http.Request{from("https://a")}) == nil {
		t.Error("followed from https to http")
	}
	if err := onward(from("https://b"), []*http.Request{from("http://a")}); err != nil {
		t.Errorf("not followed to https: %v", err)
	}
}
