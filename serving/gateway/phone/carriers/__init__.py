"""Phone networks by name: verification of their webhooks, and the answers to them.

The media stream of a network is the row of the same name in ``transports.registry``.
"""

from parley.core.registry import Registry, Row
from parley.serving.gateway.phone.carriers.carrier import Carrier

CARRIERS: Registry[Carrier] = Registry(
    "carrier",
    {
        "twilio": Row("parley.serving.gateway.phone.carriers.twilio:TwilioCarrier"),
        "telnyx": Row(
            "parley.serving.gateway.phone.carriers.telnyx:TelnyxCarrier", env=("TELNYX_PUBLIC_KEY",)
        ),
        "plivo": Row("parley.serving.gateway.phone.carriers.plivo:PlivoCarrier", env=("PLIVO_AUTH_TOKEN",)),
        "vonage": Row(
            "parley.serving.gateway.phone.carriers.vonage:VonageCarrier", env=("VONAGE_SIGNATURE_SECRET",)
        ),
        "exotel": Row(
            "parley.serving.gateway.phone.carriers.exotel:ExotelCarrier",
            env=("EXOTEL_USER", "EXOTEL_PASSWORD"),
        ),
    },
    is_extensible=False,
)
