package enrollment

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const longSecret = "a secret of exactly 32 bytes....."

var someGrant = Grant{Secret: longSecret, Tunnel: "ngrok", NgrokToken: "the-token-of-ngrok", Domain: "a.ngrok.app"}

// pair returns an offer and an executor that answers it.
func pair(t testing.TB) (*Offer, *Response) {
	t.Helper()
	o, err := NewOffer()
	must(t, err)
	r, err := NewResponse(o.JobID(), o.PublicKey())
	must(t, err)
	return o, r
}

// granted returns a pair whose grant is open, and the executor's answer.
func granted(t testing.TB) (*Offer, *Response, Answer) {
	t.Helper()
	o, r := pair(t)
	sealed, err := o.Seal(r.PublicKey(), someGrant)
	must(t, err)
	if _, err := r.Open(sealed); err != nil {
		t.Fatal(err)
	}
	a, err := r.Answer("https://a.ngrok.app", "an-instance")
	must(t, err)
	return o, r, a
}

func TestAnEnrollmentHandsOverTheGrant(t *testing.T) {
	o, r := pair(t)
	sealed, err := o.Seal(r.PublicKey(), someGrant)
	must(t, err)
	if g, err := r.Open(sealed); err != nil || wireGrant(g) != wireGrant(someGrant) {
		t.Fatalf("the executor got %#v, %v", wireGrant(g), err)
	}
	a, err := r.Answer("https://a.ngrok.app", "an-instance")
	must(t, err)
	if err := o.Check(a); err != nil {
		t.Error(err)
	}
	public := strings.Join([]string{o.JobID(), o.PublicKey(), r.PublicKey(), sealed, fmt.Sprint(a)}, " ")
	if strings.Contains(public, longSecret) || strings.Contains(public, someGrant.NgrokToken) {
		t.Errorf("what crosses the notebook holds a secret: %s", public)
	}
}

func TestEachPartWorksOnce(t *testing.T) {
	o, r, a := granted(t)
	other, err := NewResponse(o.JobID(), o.PublicKey())
	must(t, err)
	if _, err := o.Seal(r.PublicKey(), someGrant); !errors.Is(err, ErrUsed) {
		t.Errorf("a second grant for the same key: %v", err)
	}
	if _, err := o.Seal(other.PublicKey(), someGrant); !errors.Is(err, ErrUsed) {
		t.Errorf("a second grant for another key: %v", err)
	}
	if _, err := r.Open("AAAA"); !errors.Is(err, ErrUsed) {
		t.Errorf("a second grant was read: %v", err)
	}
	must(t, o.Check(a))
	if err := o.Check(a); !errors.Is(err, ErrUsed) {
		t.Errorf("a second answer: %v", err)
	}
}

func TestAnOfferAndItsAnswerExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, r := pair(t)
		early, waiting, answer := granted(t)
		<-time.After(Lifetime - time.Nanosecond)
		sealed, err := o.Seal(r.PublicKey(), someGrant)
		if err != nil {
			t.Fatalf("at the last moment: %v", err)
		}
		<-time.After(time.Nanosecond)
		if _, err := r.Open(sealed); !errors.Is(err, ErrExpired) {
			t.Errorf("a late grant: %v", err)
		}
		if err := early.Check(answer); !errors.Is(err, ErrExpired) {
			t.Errorf("a late answer: %v", err)
		}
		late, r2 := &Offer{job: o.job, made: o.made, private: o.private}, waiting
		if _, err := late.Seal(r2.PublicKey(), someGrant); !errors.Is(err, ErrExpired) {
			t.Errorf("a late executor: %v", err)
		}
	})
}

func TestAKeyChangedOnOneSideOpensNothing(t *testing.T) {
	o, r := pair(t)
	middle, own := pair(t)
	t.Run("the executor's key, in the output", func(t *testing.T) {
		sealed, err := o.Seal(own.PublicKey(), someGrant)
		must(t, err)
		if _, err := r.Open(sealed); !errors.Is(err, ErrGrant) {
			t.Errorf("the executor read it: %v", err)
		}
	})
	for name, asked := range map[string][2]string{
		"the relay's key, in the cell": {o.JobID(), middle.PublicKey()}, "the job": {middle.JobID(), o.PublicKey()},
	} {
		t.Run(name, func(t *testing.T) {
			changed, err := NewResponse(asked[0], asked[1])
			must(t, err)
			fresh := &Offer{job: o.job, made: o.made, private: o.private}
			sealed, err := fresh.Seal(changed.PublicKey(), someGrant)
			must(t, err)
			if _, err := changed.Open(sealed); !errors.Is(err, ErrGrant) {
				t.Errorf("the executor read it: %v", err)
			}
		})
	}
	t.Run("the relay's key comes back", func(t *testing.T) {
		if _, err := middle.Seal(middle.PublicKey(), someGrant); err == nil || !strings.Contains(err.Error(), "the relay's own") {
			t.Errorf("it was accepted: %v", err)
		}
	})
}

func TestAnAnswerOfWhichAnythingChangedIsRefused(t *testing.T) {
	o, _, good := granted(t)
	_, _, others := granted(t)
	for name, change := range map[string]func(*Answer){
		"URL":           func(a *Answer) { a.URL = "https://b.ngrok.app" },
		"instance":      func(a *Answer) { a.InstanceID = "another" },
		"border":        func(a *Answer) { a.URL, a.InstanceID = a.URL+a.InstanceID[:1], a.InstanceID[1:] },
		"no MAC":        func(a *Answer) { a.MAC = "" },
		"long MAC":      func(a *Answer) { a.MAC += "A" },
		"other bits":    func(a *Answer) { a.MAC = flipLast(a.MAC) },
		"another's":     func(a *Answer) { *a = others },
		"long instance": func(a *Answer) { a.InstanceID = strings.Repeat("a", maxFieldBytes+1) },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			if err := o.Check(bad); !errors.Is(err, ErrAnswer) {
				t.Errorf("%+v: %v", bad, err)
			}
		})
	}
	if err := o.Check(good); err != nil {
		t.Errorf("after all these, the good answer: %v", err)
	}
	fresh, _ := pair(t)
	if err := fresh.Check(good); !errors.Is(err, ErrAnswer) {
		t.Errorf("before a grant: %v", err)
	}
}

// flipLast changes bits of the last character that decode to nothing.
func flipLast(text string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, text[len(text)-1])
	return text[:len(text)-1] + alphabet[last^1:last^1+1]
}

func TestKeysThatCanNotBeUsedAreRefusedAndDoNotUseUpTheOffer(t *testing.T) {
	o, r := pair(t)
	zero := encoding.EncodeToString(make([]byte, keyBytes))
	one := encoding.EncodeToString(append([]byte{1}, make([]byte, keyBytes-1)...))
	order8, _ := hex.DecodeString("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
	bad := []string{"", "A", zero, one, encoding.EncodeToString(order8), r.PublicKey()[:42], r.PublicKey() + "A", r.PublicKey() + "=", flipLast(r.PublicKey()), strings.Repeat("A", 1<<20), "\n" + r.PublicKey()[1:], strings.Repeat("ü", 43)}
	for _, key := range bad {
		if _, err := o.Seal(key, someGrant); err == nil || len(err.Error()) > 400 {
			t.Errorf("as the executor's key, %.50q gives %v", key, err)
		}
		if _, err := NewResponse(o.JobID(), key); err == nil || len(err.Error()) > 400 {
			t.Errorf("as the relay's key, %.50q gives %v", key, err)
		}
	}
	for _, job := range []string{"", strings.ToUpper(fixedJob), fixedJob + "00", "../" + fixedJob[3:], strings.Repeat("0", 1<<20)} {
		if _, err := NewResponse(job, o.PublicKey()); err == nil || len(err.Error()) > 400 {
			t.Errorf("job %.50q: %v", job, err)
		}
	}
	if _, err := o.Seal(r.PublicKey(), someGrant); err != nil {
		t.Errorf("the good key, after all these: %v", err)
	}
}

func TestPrintedGrantsShowNoSecret(t *testing.T) {
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "grant", someGrant, "pointer", &someGrant)
	text := log.String() + fmt.Sprintf("%v %+v %#v %s %d %v %v", someGrant, someGrant, someGrant, someGrant, someGrant, &someGrant, []Grant{someGrant})
	if strings.Contains(text, longSecret) || strings.Contains(text, someGrant.NgrokToken) || !strings.Contains(text, "[grant for the tunnel ngrok]") {
		t.Errorf("it shows %s", text)
	}
}

func TestDamagedGrantsOpenNothingAndTheGoodOneStillOpens(t *testing.T) {
	o, r := pair(t)
	sealed, err := o.Seal(r.PublicKey(), someGrant)
	must(t, err)
	raw, err := encoding.DecodeString(sealed)
	must(t, err)
	for at := range raw {
		bad := append([]byte(nil), raw...)
		bad[at] ^= 1 << (at % 8)
		refused(t, r, encoding.EncodeToString(bad))
	}
	for end := range len(raw) {
		refused(t, r, encoding.EncodeToString(raw[:end]))
	}
	for _, bad := range []string{sealed + "A", sealed + "=", sealed + "\n", "\r\n" + sealed, sealed[:10] + "\n" + sealed[10:], strings.Repeat("A", MaxSealedBytes+1), "ü"} {
		refused(t, r, bad)
	}
	if _, err := r.Open(sealed); err != nil {
		t.Errorf("after all these, the good grant: %v", err)
	}
}

func refused(t *testing.T, r *Response, sealed string) {
	t.Helper()
	if g, err := r.Open(sealed); !errors.Is(err, ErrGrant) || g != (Grant{}) {
		t.Fatalf("%.60q: %v", sealed, err)
	}
}

func FuzzOpen(f *testing.F) {
	o, r := pair(f)
	sealed, err := o.Seal(r.PublicKey(), someGrant)
	must(f, err)
	f.Add(sealed)
	f.Add("")
	f.Add(strings.Repeat("A", 100))
	f.Fuzz(func(t *testing.T, text string) {
		fresh := &Response{made: r.made, public: r.public, keys: r.keys}
		g, err := fresh.Open(text)
		if (err == nil) != (text == sealed) {
			t.Errorf("%q opened as %v, %v", text, g, err)
		}
	})
}

func FuzzPublicKey(f *testing.F) {
	_, r := pair(f)
	f.Add(r.PublicKey())
	f.Fuzz(func(t *testing.T, text string) {
		key, err := publicKey(text)
		if err == nil && encoding.EncodeToString(key.Bytes()) != text {
			t.Errorf("%q was read as %q", text, encoding.EncodeToString(key.Bytes()))
		}
	})
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
