package freeport

import (
	"net"
	"testing"
)

func TestAnAddressCanBeListenedOnAgainAndAgain(t *testing.T) {
	address, err := Address()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if _, err := net.Dial("tcp", address); err == nil {
			t.Fatal("somebody listens on the address after the server was closed")
		}
		_ = c.Close()
	}
}

// Every port that the system gives away is another one.
func TestAnAddressIsGivenToNobodyElse(t *testing.T) {
	kept := map[string]bool{}
	for range 200 {
		address, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		if kept[address] {
			t.Fatalf("%s was given out twice", address)
		}
		kept[address] = true
	}
	for range 2000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if kept[l.Addr().String()] {
			t.Fatalf("%s was given to a listener", l.Addr())
		}
		_ = l.Close()
	}
}
