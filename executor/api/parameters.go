package api

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"colabrelay/shared/contract"
)

// parameters reads the parameters of a request. err is the first error; check it after
// the last parameter.
type parameters struct {
	r     *http.Request
	query url.Values
	err   error
}

func parametersOf(r *http.Request) *parameters { return &parameters{r: r, query: r.URL.Query()} }

// id is the {id} in the path. If it can't be the id of anything, the error is unknown.
func (p *parameters) id(unknown error) string {
	id := chi.URLParam(p.r, "id")
	if !idPattern.MatchString(id) {
		p.fail(unknown)
	}
	return id
}

// number is a whole number from low to high, or fallback if it is absent.
func (p *parameters) number(name string, fallback, low, high int64) int64 {
	text := p.query.Get(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		p.fail(badRequest("%s: must be a whole number from %d to %d", name, low, high))
		return fallback
	}
	return n
}

// wait is wait_seconds: how long a long poll may wait. The default is 0.
func (p *parameters) wait() time.Duration {
	text := p.query.Get("wait_seconds")
	if text == "" {
		return 0
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s = -1 // refused below
	}
	wait, err := seconds("wait_seconds", s, contract.MaxWait)
	p.fail(err)
	return wait
}

// flag is true or false. The default is false.
func (p *parameters) flag(name string) bool {
	switch p.query.Get(name) {
	case "true":
		return true
	case "", "false":
		return false
	}
	p.fail(badRequest("%s: must be true or false", name))
	return false
}

func (p *parameters) fail(err error) { p.err = cmp.Or(p.err, err) }

// seconds converts s to a duration. It fails unless s is from 0 to most.
func seconds(name string, s float64, most time.Duration) (time.Duration, error) {
	if !(s >= 0 && s <= most.Seconds()) { // also false for NaN
		return 0, badRequest("%s: must be a number from 0 to %g", name, most.Seconds())
	}
	return time.Duration(s * float64(time.Second)), nil
}
