"""Animations of values, trees and episodes, as GIFs, as pages with buttons, and in the terminal."""
